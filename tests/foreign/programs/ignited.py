# needs: ignite
"""An engine of ignite, with an evaluator and metrics."""
import truth
import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, Loss
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(400, 12), torch.randint(3, (400,)))
model, criterion = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 3)), nn.CrossEntropyLoss()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
trainer = create_supervised_trainer(model, optimizer, criterion)
evaluator = create_supervised_evaluator(model, metrics={"accuracy": Accuracy(), "loss": Loss(criterion)})


@trainer.on(Events.ITERATION_COMPLETED(every=6))
def evaluate(engine):
    evaluator.run(DataLoader(data, batch_size=100))
    print(engine.state.iteration, {name: round(value, 6) for name, value in evaluator.state.metrics.items()})


trainer.run(DataLoader(data, batch_size=20, shuffle=True), max_epochs=2)
truth.finish(trainer.state.output, model, steps=40, batch=20)
