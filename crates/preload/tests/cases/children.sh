# A C program whose children outlive the descriptors that they inherited.
cc -w -O1 -o "$SCRATCH/children" "$CASES/children.c" || exit 1
$SCRATCH/children
echo $?
cat kept-*
