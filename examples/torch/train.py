"""A small training that any number of ranks can share: `torchrun train.py NAME --steps N`.

Every step uses the same samples, dealt evenly to the ranks, and DDP averages their gradients: the
loss at a step is the same whatever the world size is, and so whoever reads the log can see that a
world that was re-formed goes on where the one before it was. The checkpoint `NAME.pt` lies in the
working directory, which all pods of a run share.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

SAMPLES = 240  # what 1, 2, 3, 4, 5 and 6 ranks can share evenly
EVERY = 5  # steps between two checkpoints

parser = argparse.ArgumentParser()
parser.add_argument("name")
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--pause", type=float, default=0.0, help="seconds; work that is worth sharing")
options = parser.parse_args()

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
node = os.environ.get("NODE_NAME", "this-machine")


def say(text: str) -> None:
    """A line in one piece: torchrun passes on whatever it finds."""
    sys.stdout.write(f"rank {rank} of {world} on {node}: {text}\n")
    sys.stdout.flush()


torch.manual_seed(0)  # the same beginning and the same samples for every rank
samples = torch.randn(SAMPLES, 8)
targets = torch.sin(samples.sum(1, keepdim=True))
mine = slice(rank * SAMPLES // world, (rank + 1) * SAMPLES // world)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

file = Path(f"{options.name}.pt")
done, worlds = 0, []
if file.exists():
    state = torch.load(file)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    done, worlds = state["step"], state["worlds"]
    say(f"goes on from step {done}")
else:
    say("begins")
worlds.append((done, world))
shared = torch.nn.parallel.DistributedDataParallel(model)

while done < options.steps:
    loss = (shared(samples[mine]) - targets[mine]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    done += 1
    mean = loss.detach() / world
    dist.all_reduce(mean)
    say(f"step {done}, loss {mean.item():.6f}")
    if rank == 0 and (done % EVERY == 0 or done == options.steps):
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state, "step": done, "worlds": worlds}, f"{file}.new")
        Path(f"{file}.new").replace(file)  # whole or not at all, whenever it is killed
    time.sleep(options.pause)

story = ", ".join(f"{size} ranks from step {first}" for first, size in worlds)
say(f"done after {done} steps: {story}")
dist.destroy_process_group()
