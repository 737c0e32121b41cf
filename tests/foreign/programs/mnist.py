"""A convolutional network on images of digits, with a test after each epoch."""
import truth
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 16, 3)
        self.conv2 = torch.nn.Conv2d(16, 32, 3)
        self.dropout = torch.nn.Dropout(0.25)
        self.fc1 = torch.nn.Linear(32 * 12 * 12, 64)
        self.fc2 = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = self.dropout(F.max_pool2d(x, 2)).flatten(1)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


torch.manual_seed(1)
data = TensorDataset(torch.randn(960, 1, 28, 28), torch.randint(10, (960,)))
train, test = DataLoader(data, batch_size=48, shuffle=True), DataLoader(data, batch_size=480)
model = Net()
optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
for epoch in range(3):
    model.train()
    for inputs, target in train:
        optimizer.zero_grad()
        loss = F.nll_loss(model(inputs), target)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in test)
    print("epoch %d: loss %.6f, %d right" % (epoch, loss.item(), right))
    scheduler.step()
truth.finish(loss, model, steps=60, batch=48)
