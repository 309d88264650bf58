/* Two ranks write a file together: collectively, and then each for itself. */
#include <mpi.h>

int main(int argc, char **argv) {
    int rank;
    MPI_File file;
    MPI_Status status;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char text[4] = {"ab"[rank], "ab"[rank], "ab"[rank], "ab"[rank]};
    if (MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) != MPI_SUCCESS) return 1;
    if (MPI_File_write_at_all(file, rank * 4, text, 4, MPI_CHAR, &status) != MPI_SUCCESS) return 2;
    if (MPI_File_seek(file, rank * 4, MPI_SEEK_SET) != MPI_SUCCESS) return 3;
    if (MPI_File_read_all(file, text, 4, MPI_CHAR, &status) != MPI_SUCCESS || text[3] != "ab"[rank]) return 4;
    MPI_File_close(&file);
    return MPI_Finalize();
}
