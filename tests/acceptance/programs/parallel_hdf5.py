"""Ranks write one HDF5 file together and read each other's part: `mpirun -np N python3 parallel_hdf5.py FILE`."""

import sys

import h5py
import numpy as np
from mpi4py import MPI

ROWS = 1000
COLUMNS = 64


def part(rank):
    return np.arange(ROWS * COLUMNS, dtype="f8").reshape(ROWS, COLUMNS) * (rank + 1)


world = MPI.COMM_WORLD
mine = slice(world.rank * ROWS, (world.rank + 1) * ROWS)
neighbour = (world.rank + 1) % world.size
theirs = slice(neighbour * ROWS, (neighbour + 1) * ROWS)
shape = (world.size * ROWS, COLUMNS)

with h5py.File(sys.argv[1], "w", driver="mpio", comm=world) as file:
    file.atomic = True
    group = file.create_group("results")
    group.attrs["ranks"] = world.size
    contiguous = group.create_dataset("contiguous", shape, "f8")
    chunked = group.create_dataset("chunked", shape, "f8", chunks=(ROWS // 3, COLUMNS // 3))
    interleaved = group.create_dataset("interleaved", shape, "f8", chunks=(7, COLUMNS))
    contiguous[mine] = part(world.rank)
    with chunked.collective:
        chunked[mine] = part(world.rank)
    with interleaved.collective:
        interleaved[world.rank :: world.size] = part(world.rank)
    file.flush()
    world.Barrier()
    assert (contiguous[theirs] == part(neighbour)).all()

with h5py.File(sys.argv[1], "r", driver="mpio", comm=world) as file:
    for name in ["contiguous", "chunked"]:
        with file["results"][name].collective:
            assert (file["results"][name][theirs] == part(neighbour)).all(), name
    assert (file["results/interleaved"][neighbour :: world.size] == part(neighbour)).all()

world.Barrier()
if world.rank == 0:
    with h5py.File(sys.argv[1], "r") as file:
        print(file["results"].attrs["ranks"], *(f"{name}={file['results'][name][:].sum():.0f}" for name in sorted(file["results"])))
