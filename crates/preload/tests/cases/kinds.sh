# Files taken for what they are not, and calls that the C library does inside itself.
# The linker warns of tempnam, at a place that differs.
cc -w -O1 -o "$SCRATCH/kinds" "$CASES/kinds.c" 2> "$SCRATCH/warnings" || exit 1
$SCRATCH/kinds
echo $?
rm file
