/* Two ranks write interleaved columns of one variable, collectively and then each by itself, and read them back. */
#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 64, COLUMNS = 512, ROUNDS = 4 };

static void check(int status, int line) {
    if (status != NC_NOERR) {
        fprintf(stderr, "line %d: %s\n", line, ncmpi_strerror(status));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}
#define CHECK(call) check(call, __LINE__)

int main(int argc, char **argv) {
    int rank, ranks, file, dims[3], variable;
    static int values[ROWS][COLUMNS], back[ROWS][COLUMNS];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(ncmpi_create(MPI_COMM_WORLD, argv[1], NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &file));
    CHECK(ncmpi_def_dim(file, "round", NC_UNLIMITED, &dims[0]));
    CHECK(ncmpi_def_dim(file, "row", ROWS, &dims[1]));
    CHECK(ncmpi_def_dim(file, "column", (MPI_Offset)COLUMNS * ranks, &dims[2]));
    CHECK(ncmpi_def_var(file, "v", NC_INT, 3, dims, &variable));
    CHECK(ncmpi_enddef(file));
    MPI_Offset count[3] = {1, ROWS, COLUMNS}, start[3] = {0, 0, (MPI_Offset)rank}, stride[3] = {1, 1, ranks};
    for (int round = 0; round < ROUNDS; round++) {
        start[0] = round;
        for (int i = 0; i < ROWS * COLUMNS; i++) values[0][i] = (round * ranks + rank) * ROWS * COLUMNS + i;
        CHECK(ncmpi_put_vars_int_all(file, variable, start, count, stride, &values[0][0]));
    }
    CHECK(ncmpi_sync(file));
    CHECK(ncmpi_begin_indep_data(file));
    start[0] = ROUNDS - 1;
    CHECK(ncmpi_get_vars_int(file, variable, start, count, stride, &back[0][0]));
    CHECK(ncmpi_end_indep_data(file));
    for (int i = 0; i < ROWS * COLUMNS; i++)
        if (back[0][i] != values[0][i]) {
            fprintf(stderr, "rank %d reads %d in place of %d\n", rank, back[0][i], values[0][i]);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    CHECK(ncmpi_close(file));
    MPI_Finalize();
    return 0;
}
