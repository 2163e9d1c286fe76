"""`make demo`: the main job on one machine, told in six acts."""
