/* Two files by MPI: one that all ranks write together, in the order of their ranks, and one of each rank's own. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { PART = 4096 };

static int put(MPI_Comm comm, const char *path, MPI_Info info, int rank, MPI_Offset at) {
    char part[PART];
    MPI_File file;
    memset(part, 'a' + rank, sizeof part);
    int mode = MPI_MODE_CREATE | MPI_MODE_WRONLY;
    if (MPI_File_open(comm, path, mode, info, &file) != MPI_SUCCESS) {
        fprintf(stderr, "cannot open %s\n", path);
        return 1;
    }
    int failed = MPI_File_write_at_all(file, at, part, PART, MPI_CHAR, MPI_STATUS_IGNORE) != MPI_SUCCESS;
    return MPI_File_close(&file) != MPI_SUCCESS || failed;
}

int main(int argc, char **argv) {
    char own[4096];
    int rank, failed;
    MPI_Info info;
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Info_create(&info);
    MPI_Info_set(info, "fileSize", "8192");
    failed = put(MPI_COMM_WORLD, argv[1], info, rank, (MPI_Offset)rank * PART);
    MPI_Info_free(&info);
    snprintf(own, sizeof own, "ufs:%s.%d", argv[1], rank);
    /* Only ROMIO takes a file system's name in front. */
    failed |= put(MPI_COMM_SELF, argc > 2 ? own : own + 4, MPI_INFO_NULL, rank, 0);
    /* What is an error stays one, and is no end of the program. */
    snprintf(own, sizeof own, "%s.none/x", argv[1]);
    failed |= MPI_File_open(MPI_COMM_WORLD, own, MPI_MODE_RDONLY, MPI_INFO_NULL, &file) == MPI_SUCCESS;
    MPI_Finalize();
    return failed;
}
