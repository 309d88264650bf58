# A thread with the smallest stack that there is.
cc -w -O1 -pthread -o "$SCRATCH/stacks" "$CASES/stacks.c" || exit 1
$SCRATCH/stacks
echo $?
