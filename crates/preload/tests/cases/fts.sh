# Walks over a tree with links, cycles, an unreadable directory (to others than root), and every instruction.
cc -w -O1 -o "$SCRATCH/fts" "$CASES/fts.c" || exit 1
mkdir -p tree/d/e/f tree/skipped/below tree/listed/b/c tree/names/n tree/empty tree/shut
echo x > tree/d/e/file
echo again > tree/again
touch tree/listed/a tree/listed/b/c/d tree/names/one tree/names/two tree/skipped/below/never tree/shut/x
mkfifo tree/fifo
ln -s d/e tree/followed
ln -s nowhere tree/dangling
ln -s .. tree/d/e/cycle
ln -s tree rootlink
chmod 0 tree/shut
$SCRATCH/fts tree tree/d/ rootlink missing tree/again
echo $?
$SCRATCH/fts "$PWD/tree/d" tree/../tree/names | sed -E "s|$PWD|HERE|g; s|(path HERE[^ ]*)/[0-9]+|\1/N|"
cd tree/d
"$SCRATCH/fts" nftw e ../listed "${PWD%/d}/names" | sed -E "s|${PWD%/tree/d}|HERE|g; s|(HERE.*) base [0-9]+|\1 base N|" | sort
