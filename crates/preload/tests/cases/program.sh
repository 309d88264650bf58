# A C program compiled here, and programs whose standard streams are files.
cc -w -O1 -pthread -o "$SCRATCH/program" "$CASES/program.c" || exit 1
$SCRATCH/program
echo $?
cat fr
rm -r fd stdio w shared sys*
$SCRATCH/program > out
cat out
sort -o shared shared
printf 'a\nb\n' > in
sort < in > srt
cat srt
grep a < in
awk '{print > "awk." NR}' in
cat awk.*
