# Extended attributes: by Python, and by the programs that copy them.
python3 "$CASES/xattrs.py"
set -- python3 -c 'import os, sys
for path in sys.argv[1:]:
    print(path, sorted((name, os.getxattr(path, name)) for name in os.listxattr(path) if name.startswith("user.")))'
mkdir tree
echo content > tree/f
python3 -c 'import os
os.setxattr("tree", "user.of.directory", b"d")
os.setxattr("tree/f", "user.mime", b"text/plain")
os.setxattr("tree/f", "user.empty", b"")'
cp -a tree copied
cp --preserve=xattr tree/f plain
cp tree/f without
rsync -aX tree/ synced
tar --xattrs -cf - tree | tar --xattrs -xf - --one-top-level=untarred
mv tree/f "$SCRATCH/elsewhere" && mv "$SCRATCH/elsewhere" tree/back
"$@" copied copied/f plain without synced synced/f untarred/tree untarred/tree/f tree/back
