# POSIX AIO, in C: single operations, lists that mix files of two file systems, notifications, errors.
cc -w -O1 -pthread -o "$SCRATCH/aio" "$CASES/aio.c" || exit 1
$SCRATCH/aio "$SCRATCH/other"
echo $?
md5sum aio
