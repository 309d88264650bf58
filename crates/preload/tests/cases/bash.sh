# Redirection, inherited descriptors, and working directories of shells.
echo one > f
echo two >> f
cat < f
{
    echo a
    echo b 1>&2
} > both 2>&1
cat both
exec 3< f
read -u 3 l
echo "$l"
read -u 3 l
echo "$l"
exec 3>&-
exec 4> g
echo four 1>&4
( echo sub 1>&4 )
bash -c 'echo grandchild >&4'
exec 4>&-
cat g
exec 5<> rw
echo 12345 1>&5
cat rw
exec 5>&-
cat <<END > here
here $((1+2))
END

cat here
while read -r x; do
    echo "<$x>"
done < f
for i in 1 2 3
do
    echo $i
done | tee t | wc -l
cat t
( cat f
cat g ) > cat2
cat cat2
exec 6>&1
exec > log
echo to log
printf 'no newline'
ls f
echo
exec 1>&6 6>&-
cat log
function cmd ()
{
    echo out
    echo err 1>&2
}
cmd > o 2> e
cat o e
cmd &> oe
cat oe
mapfile -t arr < f
echo ${#arr[@]} ${arr[1]}
echo *
echo f*
[[ -f f && -s f && ! -d f && -r f ]] && echo ok
set -C
echo x > f || echo noclobber
set +C
: > f
wc -c < f
mkdir sub
cd sub
echo in > in
cat in
cat ../g
cd ..
ls sub
pushd sub > /dev/null
cat in
popd > /dev/null
( cd sub && cat in ../o )
cd sub/../sub
basename "$PWD"
cd -P ..
basename $(/bin/pwd) > /dev/null
sh -c 'cd sub; echo dash > d; cat d; cat < d > d2; cat d2'
ls sub
yes | head -c 100000 > y
wc -c y
head -n 2 < y
( head -c 2
head -c 2 | od -c ) < g
{
    read a
    cat
} < g
echo "$a"
exec 7> >(cat > proc1)
echo abc 1>&7
exec 7>&-
wait $!
cat proc1
cat <(cat f; echo p)
diff <(sort g) <(sort g) && echo same
trap 'echo trap > trapfile' EXIT
kill -0 $$ && echo alive
ls -la /proc/self/fd > /dev/null
xargs -n1 echo < g
cat g | xargs -I{} sh -c 'echo {} >> xa'
cat xa
test -t 0 < f || echo notty
timeout 5 cat f g > to
cat to
nohup cat g > nh 2> /dev/null
cat nh
env -i PATH=$PATH LD_PRELOAD="$LD_PRELOAD" ISONOMIA_SERVER="$ISONOMIA_SERVER" cat < g
