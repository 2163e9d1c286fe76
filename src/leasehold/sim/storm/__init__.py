"""The shipped control plane, several of it, under every fault that the world can do to it."""
