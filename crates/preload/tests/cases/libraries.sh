# Libraries under the prefix, and one elsewhere that finds another beside it.
echo 'static int calls; int count(void) { return ++calls; }' > first.c
echo 'int other(void) { return 22; }' > second.c
echo 'int other(void) { return 33; }' > third.c
printf '#include <dlfcn.h>\nint beside(void) { return dlopen("beside.so", RTLD_NOW) != 0; }\n' > caller.c
mkdir -p sub "$SCRATCH/libraries"
echo text > text.so
cc -shared -fPIC -o first.so first.c && cc -shared -fPIC -o sub/second.so second.c && cc -shared -fPIC -o sub/third.so third.c || exit 1
cc -shared -fPIC -o "$SCRATCH/libraries/beside.so" second.c || exit 1
cc -shared -fPIC -Wl,--enable-new-dtags,-rpath,'$ORIGIN' -o "$SCRATCH/libraries/caller.so" caller.c || exit 1
ln -s first.so link.so
cc -w -O1 -o "$SCRATCH/load" "$CASES/libraries.c" -ldl || exit 1
"$SCRATCH/load" "$SCRATCH/libraries/caller.so" | sed "s|$PWD|HERE|g"
# An extension of Python's: what `import` does.
python3 -c 'import ctypes, os; print(ctypes.CDLL(os.path.abspath("sub/second.so")).other())'
rm -r sub *.so
