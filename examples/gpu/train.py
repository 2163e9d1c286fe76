"""A small training on one GPU that checkpoints: `train.py NAME STEPS`.

Goes on from the checkpoint in its working directory, prints which GPU it was given and how far it
came, and ends when it has made all its steps. Told to stop, it stops; the checkpoint stays.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch

name, steps = sys.argv[1], int(sys.argv[2])
state_file = Path(f"{name}.pt")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(f"{name}: told to stop"))

visible = os.environ["CUDA_VISIBLE_DEVICES"]
device = torch.device("cuda:0")
print(f"{name}: {torch.cuda.get_device_name(0)}, CUDA_VISIBLE_DEVICES={visible}, "
      f"attempt {os.environ['LEASEHOLD_ATTEMPT']}", flush=True)  # fmt: skip

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 1))
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
first = 0
if state_file.exists():
    state = torch.load(state_file, map_location=device)
    model.load_state_dict(state["model"])
    first = state["step"]
    print(f"{name}: goes on from step {first}", flush=True)

for step in range(first, steps):
    batch = torch.randn(8192, 2048, device=device)
    loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if (step + 1) % 10 == 0:
        fresh = state_file.with_suffix(".new")
        torch.save({"model": model.state_dict(), "step": step + 1}, fresh)
        fresh.replace(state_file)
        print(f"{name}: step {step + 1}, loss {loss.item():.1f}", flush=True)
    time.sleep(0.1)
print(f"{name}: done after {steps} steps", flush=True)
