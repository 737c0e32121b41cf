# needs: skorch sklearn
"""skorch in a grid search of scikit-learn: many short trainings, one after the other."""
import truth
import numpy
import torch
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetClassifier
from torch import nn


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Linear(width, 2), nn.Softmax(dim=-1))

    def forward(self, x):
        return self.layers(x)


torch.manual_seed(0)
numpy.random.seed(0)
x, y = numpy.random.randn(300, 10).astype("float32"), numpy.random.randint(2, size=300)
net = NeuralNetClassifier(Net, max_epochs=3, lr=0.1, batch_size=20, verbose=0, train_split=None)
search = GridSearchCV(net, {"module__width": [16, 32], "lr": [0.05, 0.1]}, cv=2, scoring="accuracy")
search.fit(x, y)
print(search.best_params_, round(search.best_score_, 6))
# 4 settings of 2 folds (8 batches an epoch), then all (15).
truth.finish(search.best_estimator_.history[-1, "train_loss"], search.best_estimator_.module_,
             steps=4 * 2 * 3 * 8 + 3 * 15, batch=20)
