# Programs with an allocator that opens files while it allocates, before and behind the client. The linker warns of tempnam.
cc -O1 -shared -fPIC -o "$SCRATCH/allocator.so" "$CASES/allocator.c" || exit 1
cc -O1 -pthread -o "$SCRATCH/allocations" "$CASES/allocations.c" 2> "$SCRATCH/warnings" || exit 1
cc -O1 -pthread -o "$SCRATCH/linked" "$CASES/allocations.c" "$SCRATCH/allocator.so" 2> "$SCRATCH/warnings" || exit 1
client=$LD_PRELOAD
try() {
    mkdir "$1" && cd "$1" || exit 1
    LD_PRELOAD=$2 timeout -s KILL 60 "$3" | sort
    cd ..
}
try none "$client" "$SCRATCH/allocations"
try behind "$client:$SCRATCH/allocator.so" "$SCRATCH/allocations"
try before "$SCRATCH/allocator.so:$client" "$SCRATCH/allocations"
try linked "$client" "$SCRATCH/linked"
# A shell, and programs that it starts, which inherit descriptors and a directory.
LD_PRELOAD=$client:$SCRATCH/allocator.so timeout -s KILL 60 bash -c \
    'cd linked; exec 3>>kept; echo one >&3; (echo two >&3; cat file0.0 | wc -c); ls | head -n 2; cp file0.0 copy; cmp file0.0 copy; cat kept'
