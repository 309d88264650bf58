/* Ranks write one HDF5 file together and read each other's part: `mpirun -np N parallel_hdf5 FILE`. */
#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 1000, COLUMNS = 64 };

static double values[ROWS][COLUMNS];
static int ranks, rank;

static void check(int fine, const char *what)
{
    if (!fine) {
        fprintf(stderr, "rank %d: %s\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static double value(int of_rank, int row, int column)
{
    return (double)(row * COLUMNS + column) * (of_rank + 1);
}

/* Moves the rows of one rank. */
static void move(hid_t data, int of_rank, int write)
{
    hsize_t start[2] = {(hsize_t)of_rank * ROWS, 0}, count[2] = {ROWS, COLUMNS};
    hid_t in_file = H5Dget_space(data), in_memory = H5Screate_simple(2, count, NULL);
    hid_t together = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_dxpl_mpio(together, H5FD_MPIO_COLLECTIVE);
    H5Sselect_hyperslab(in_file, H5S_SELECT_SET, start, NULL, count, NULL);
    if (write)
        check(H5Dwrite(data, H5T_NATIVE_DOUBLE, in_memory, in_file, together, values) >= 0, "cannot write");
    else
        check(H5Dread(data, H5T_NATIVE_DOUBLE, in_memory, in_file, together, values) >= 0, "cannot read");
    H5Pclose(together);
    H5Sclose(in_memory);
    H5Sclose(in_file);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    check(argc == 2, "usage: parallel_hdf5 FILE");

    hid_t how = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_mpio(how, MPI_COMM_WORLD, MPI_INFO_NULL);
    hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, how);
    check(file >= 0, "cannot create the file");
    hsize_t shape[2] = {(hsize_t)ranks * ROWS, COLUMNS}, chunk[2] = {ROWS / 3, COLUMNS / 3};
    hid_t space = H5Screate_simple(2, shape, NULL);
    hid_t layouts[2] = {H5Pcreate(H5P_DATASET_CREATE), H5Pcreate(H5P_DATASET_CREATE)};
    H5Pset_chunk(layouts[1], 2, chunk);
    const char *names[2] = {"contiguous", "chunked"};
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++)
            values[row][column] = value(rank, row, column);
    for (int i = 0; i < 2; i++) {
        /* The same bytes whenever it runs. */
        H5Pset_obj_track_times(layouts[i], 0);
        hid_t data = H5Dcreate(file, names[i], H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, layouts[i], H5P_DEFAULT);
        move(data, rank, 1);
        H5Dclose(data);
    }
    check(H5Fclose(file) >= 0, "cannot close");

    int neighbour = (rank + 1) % ranks;
    file = H5Fopen(argv[1], H5F_ACC_RDONLY, how);
    check(file >= 0, "cannot open the file");
    for (int i = 0; i < 2; i++) {
        hid_t data = H5Dopen(file, names[i], H5P_DEFAULT);
        move(data, neighbour, 0);
        for (int row = 0; row < ROWS; row++)
            for (int column = 0; column < COLUMNS; column++)
                check(values[row][column] == value(neighbour, row, column), names[i]);
        H5Dclose(data);
    }
    H5Fclose(file);
    if (rank == 0)
        printf("%d ranks wrote and read\n", ranks);
    MPI_Finalize();
    return 0;
}
