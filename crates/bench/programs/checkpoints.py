"""Ranks compute, and write checkpoints into one HDF5 file together: `mpirun -np N python3 checkpoints.py FILE`."""

import sys

import h5py
import numpy as np
from mpi4py import MPI

CHECKPOINTS = 8
# Of doubles that each rank writes at each checkpoint: 2 MiB.
ROWS = 2048
COLUMNS = 128
# Products of matrices between two checkpoints.
PRODUCTS = 5

world = MPI.COMM_WORLD
state = np.random.default_rng(world.rank).random((400, 400))
mine = slice(world.rank * ROWS, (world.rank + 1) * ROWS)

with h5py.File(sys.argv[1], "w", driver="mpio", comm=world) as file:
    checkpoints = file.create_dataset("checkpoints", (CHECKPOINTS, world.size * ROWS, COLUMNS), "f8")
    for at in range(CHECKPOINTS):
        for _ in range(PRODUCTS):
            state = np.tanh(state @ state.T / len(state))
        part = np.resize(state, (ROWS, COLUMNS))
        with checkpoints.collective:
            checkpoints[at, mine] = part

with h5py.File(sys.argv[1], "r", driver="mpio", comm=world) as file:
    assert (file["checkpoints"][CHECKPOINTS - 1, mine] == part).all()
