# needs: keras
"""Keras on PyTorch: fit() with validation; and a loop of one's own with a torch optimizer."""
import os

os.environ["KERAS_BACKEND"] = "torch"
import truth
import keras
import numpy
import torch

keras.utils.set_random_seed(0)
x, y = numpy.random.rand(640, 12, 12, 1).astype("float32"), numpy.random.randint(4, size=640)
model = keras.Sequential([keras.layers.Input((12, 12, 1)), keras.layers.Conv2D(8, 3, activation="relu"),
                          keras.layers.Flatten(), keras.layers.Dense(4, activation="softmax")])
model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="sparse_categorical_crossentropy")
history = model.fit(x, y, batch_size=32, epochs=2, validation_split=0.1, verbose=2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(36):
    inputs, target = torch.from_numpy(x[step * 16:][:16]), torch.from_numpy(y[step * 16:][:16]).long()
    loss = torch.nn.functional.nll_loss(torch.log(model(inputs, training=True)), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
truth.finish(loss, steps=36, batch=16, parameters=sum(p.numel() for p in model.parameters() if p.requires_grad))
