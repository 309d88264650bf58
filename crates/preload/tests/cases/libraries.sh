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
mkdir -p sub/beside/below
echo 'int deep(void) { return 4; }' > deep.c
echo 'int deep(void); int middle(void) { return 30 + deep(); }' > middle.c
echo 'int middle(void); int other(void); int sum(void) { return 200 + middle(); }' > needing.c
cc -shared -fPIC -Wl,-soname,libdeep.so -o sub/beside/below/libdeep.so deep.c || exit 1
cc -shared -fPIC -Wl,-soname,libmiddle.so -Wl,--disable-new-dtags,-rpath,'/nowhere:$ORIGIN/below' -o sub/beside/libmiddle.so middle.c \
    sub/beside/below/libdeep.so || exit 1
cc -shared -fPIC -Wl,--enable-new-dtags,-rpath,'${ORIGIN}/beside' -Wl,--allow-shlib-undefined -o sub/needing.so needing.c \
    sub/beside/libmiddle.so || exit 1
ln -s first.so link.so
cc -w -O1 -o "$SCRATCH/load" "$CASES/libraries.c" -ldl || exit 1
"$SCRATCH/load" "$SCRATCH/libraries/caller.so" | sed "s|$PWD|HERE|g"
# An extension of Python's: what `import` does.
python3 -c 'import ctypes, os; print(ctypes.CDLL(os.path.abspath("sub/second.so")).other())'
rm -r sub *.so
