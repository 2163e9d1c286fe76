"""Every rank adds its number to those of all others; torchrun has told it where they meet."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
print(
    f"rank {dist.get_rank()} of {dist.get_world_size()} in pod {os.environ['GROUP_RANK']}: "
    f"the ranks add up to {total.item():.0f}",
    flush=True,
)
dist.destroy_process_group()
