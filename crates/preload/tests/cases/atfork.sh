# A library whose handlers of forks use files.
cc -w -shared -fPIC -o "$SCRATCH/libatfork.so" "$CASES/atfork.c" || exit 1
cc -w -DPROGRAM -o "$SCRATCH/atfork" "$CASES/atfork.c" "$SCRATCH/libatfork.so" || exit 1
$SCRATCH/atfork
echo $?
sort log | uniq -c
rm log
