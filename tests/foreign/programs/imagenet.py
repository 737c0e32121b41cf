# needs: torchvision
# case: imagenet {python} {file} 0
# case: imagenet-workers {python} {file} 2
"""A ResNet whose loader makes and normalizes pictures, here or in worker processes."""
import sys

import truth
import torch
import torchvision
from torchvision.transforms import v2


class Pictures(torch.utils.data.Dataset):
    change = v2.Compose([v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True),
                         v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])

    def __len__(self):
        return 32 * 16

    def __getitem__(self, index):
        picture = torch.randint(256, (3, 40, 40), dtype=torch.uint8, generator=torch.Generator().manual_seed(index))
        return self.change(picture), index % 10


def main():
    torch.manual_seed(0)
    workers = int(sys.argv[1])
    loader = torch.utils.data.DataLoader(Pictures(), batch_size=16, shuffle=True, num_workers=workers)
    model = torchvision.models.resnet18(num_classes=10)
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    model.train()
    for index, (images, target) in enumerate(loader):
        loss = criterion(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if index % 10 == 0:
            print("[%d] loss %.6f" % (index, loss.item()))
    truth.finish(loss, model, steps=32, batch=16)


if __name__ == "__main__":
    main()
