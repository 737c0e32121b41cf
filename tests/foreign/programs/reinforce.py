# needs: gymnasium
# case: reinforce {python} {file} reinforce
# case: actor-critic {python} {file} critic
"""Policy gradients on a cart with a pole: one step an episode, the policy called state by state."""
import sys

import truth
import gymnasium
import numpy
import torch
from torch import nn
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.action, self.value = nn.Linear(4, 64), nn.Linear(64, 2), nn.Linear(64, 1)
        self.dropout = nn.Dropout(0.2)

    def forward(self, state):
        hidden = torch.relu(self.dropout(self.hidden(state)))
        return torch.softmax(self.action(hidden), dim=-1), self.value(hidden)


torch.manual_seed(543)
numpy.random.seed(543)
environment = gymnasium.make("CartPole-v1")
policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
for episode in range(50):
    state, _ = environment.reset(seed=episode)
    rewards, likely, values = [], [], []
    for _ in range(200):
        probability, value = policy(torch.from_numpy(state).float().unsqueeze(0))
        choice = Categorical(probability)
        action = choice.sample()
        likely.append(choice.log_prob(action))
        values.append(value.squeeze())
        state, reward, done, cut, _ = environment.step(action.item())
        rewards.append(reward)
        if done or cut:
            break
    sums, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + 0.99 * total
        sums.insert(0, total)
    sums = torch.tensor(sums)
    sums = (sums - sums.mean()) / (sums.std() + 1e-6)
    if sys.argv[1] == "critic":
        ahead = sums - torch.stack(values).detach()
        loss = (-torch.cat(likely) * ahead).sum() + nn.functional.smooth_l1_loss(torch.stack(values), sums)
    else:
        loss = (-torch.cat(likely) * sums).sum() + 0.0 * torch.stack(values).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if episode % 10 == 0:
        print("episode %d: %d steps" % (episode, len(rewards)))
truth.finish(loss, policy, steps=50)
