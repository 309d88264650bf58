"""Two HDF5 files: one that all ranks create together, and one of each rank's own."""

import sys

import h5py
from mpi4py import MPI

rank = MPI.COMM_WORLD.rank
with h5py.File(f"{sys.argv[1]}.h5", "w", driver="mpio", comm=MPI.COMM_WORLD) as file:
    file.create_dataset("ranks", (MPI.COMM_WORLD.size,), "i4")[rank] = rank
with h5py.File(f"{sys.argv[1]}.{rank}.h5", "w") as file:
    file["rank"] = rank
MPI.COMM_WORLD.Barrier()
with h5py.File(f"{sys.argv[1]}.h5", "r") as file:
    assert list(file["ranks"]) == list(range(MPI.COMM_WORLD.size))
