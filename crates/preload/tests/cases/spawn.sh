# Children that are spawned with everything closed.
cc -w -O1 -o "$SCRATCH/spawn" "$CASES/spawn.c" || exit 1
mkdir below
$SCRATCH/spawn 2>&1
cat out err kept
rm out err kept
