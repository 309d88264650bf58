"""GNU coreutils, findutils, and diffutils."""

from service import PREFIX, SameAsLocalCase

TREE = """
mkdir -p tree/a/b tree/c 'tree/with blank'
for i in 1 2 3; do seq $((i * 1000)) > tree/a/$i; done
head -c 3000000 /dev/zero | tr '\\0' x > tree/large
printf 'no newline' > 'tree/with blank/f'
: > tree/c/empty
ln -s ../a/1 tree/c/link
ln -s nowhere tree/c/dangling
ln tree/a/2 tree/a/b/hard
chmod 600 tree/a/3; chmod 1777 tree/c; chmod 6755 tree/a/1
touch -d '2001-02-03 04:05:06.789' tree/a/1 tree/c/link
"""


class Coreutils(SameAsLocalCase):
    def test_cp_and_diff_of_a_tree(self):
        self.same(TREE + "cp -a tree copy; diff -r --no-dereference tree copy; stat -c '%n %a %y' copy/a/1; [ copy/a/3 -nt tree/a/3 ] || [ copy/a/3 -ot tree/a/3 ] || echo same time")

    def test_cp_of_one_file_with_its_options(self):
        self.same("seq 10 > a; cp a b; cp -n a b; cp --preserve=all a c; cp -l a d; cp -s a e; cp a nodir/b; cp . x")

    def test_cat_head_tail_and_wc(self):
        self.same("seq 100000 > a; cat a a | md5sum; head -n 3 a; tail -n 3 a; tail -c +500000 a | wc; wc a; cat missing")

    def test_dd_with_offsets(self):
        self.same(
            "dd if=/dev/zero of=a bs=4k count=64 status=none; seq 1000 | dd of=a bs=1 seek=777 conv=notrunc status=none;"
            "dd if=a bs=100 skip=7 count=3 status=none | od -c; dd if=a of=b bs=1M oflag=append conv=notrunc status=none;"
            "dd if=a of=c conv=fsync,excl status=none; dd if=a of=c conv=excl status=none"
        )

    def test_ls_long_and_recursive(self):
        # The size of a directory and the total, which counts blocks, are the file system's own affair.
        self.same(TREE + "ls -lRA --time-style=+%s tree/a/1; ls -R tree; ls -d tree/*; ls -lR tree | awk '/^-/{print $1,$2,$5,$9}'")

    def test_ls_of_a_large_directory(self):
        self.same("for i in $(seq 3000); do : > f$i; done; ls | sort | md5sum; ls -f | wc -l; rm f*[05]; ls | wc -l")

    def test_stat(self):
        self.same(TREE + "cd tree; stat -c '%n %F %a %h %s %u %g %N' a/1 a/2 c c/link c/dangling; stat -L -c %F c/link; stat x")

    def test_mv(self):
        self.same(TREE + "mv tree/a tree/z; mv tree/z/1 tree/z/2; mv tree/c tree/z; mv tree/large .; mv -n large tree/z/3; mv no x; mv tree tree/z")

    def test_mv_across_file_systems(self):
        self.same("t=$(mktemp -d); seq 10 > $t/a; mkdir $t/d; seq 5 > $t/d/b; mv $t/a $t/d .; ls $t; mv d $t; cat $t/d/b; rm -r $t")

    def test_rm_and_rmdir(self):
        self.same(TREE + "rm tree/c/link; rm tree/a; rmdir tree/a; rm -r tree/a; rm -f none; rm none; rmdir 'tree/with blank'; ls tree; rm -rf tree")

    def test_mkdir(self):
        self.same("mkdir a; mkdir a; mkdir -p a/b/c/d; mkdir -m 700 e; mkdir x/y; (umask 077; mkdir f); touch g; mkdir g/h")

    def test_ln_and_readlink(self):
        self.same("seq 3 > a; ln a b; seq 4 > b; cat a; ln a b; ln -s a c; cat c; ln -sfn . c; readlink c; readlink -f c/b | xargs basename; ln x y; ln -s loop loop; cat loop")

    def test_truncate(self):
        self.same("seq 1000 > a; truncate -s 100 a; truncate -s +5000 a; truncate -s 1M b; tail -c 10 b | od -c; truncate -s 0 a; truncate -c -s 5 none")

    def test_du_and_find(self):
        self.same(TREE + "du --apparent-size -b tree/a/2 tree/large; find tree -name '*[12]' -size +1c | sort; find tree -type l -printf '%p %l\\n' | sort; find tree -newer tree/a/1 -type f | sort; find tree -empty -type f; find tree -name 3 -delete")

    def test_checksums_of_a_tree(self):
        self.same(TREE + "find tree -type f | sort | xargs -d '\\n' md5sum > sums; md5sum -c sums; echo x >> tree/a/2; md5sum -c --quiet sums")

    def test_touch_chmod_and_test(self):
        self.same("touch a; touch -d @1000000000.5 a; stat -c '%Y %y' a; touch -c b; chmod 640 a; chmod u+s,o+t a; chmod x a; [ -f a ] && [ ! -e b ] && [ -r a ] && echo yes; touch -r a c; [ c -nt a ] || echo same")

    def test_tee_split_sort_and_install(self):
        self.same("seq 5000 | tee a b | wc -l; split -l 1000 a part.; cat part.* | cmp - a; sort -rn a -o a; head -1 a; install -D -m 750 b d/e/f; sort -n a b | uniq -d | wc -l; shuf -n 0 a; tac b | head -1")

    def test_mktemp_realpath_and_pwd(self):
        self.same("d=$(mktemp -d -p .); f=$(mktemp -p $d); [ -w $f ] && echo made; stat -c %a $d $f; rm -r $d; mkdir -p a/b; cd a/b; basename $PWD; cd ..; cd -P ..; ls; realpath --relative-to=. a/b/../b; cd none")

    def test_names_and_paths_that_are_too_long(self):
        long = "n" * 255
        self.same(f"touch {long}; ls | wc -c; rm {long}")
        self.assertIn("File name too long", self.bash(f"touch {long}n", check=False).stderr)
        path = "/".join(["d" * 200] * 25)
        self.assertIn("File name too long", self.shared.run("cat", f"{PREFIX}/{path}", check=False).stderr)

    def test_df(self):
        total, free = self.shared.run("df", "--output=size,avail", "-B1", self.directory).stdout.splitlines()[1].split()
        self.assertGreaterEqual(int(total), int(free))
        self.assertGreater(int(free), 0)


class CoreutilsOverTcp(Coreutils):
    """The same with a key over TCP."""

    TRANSPORT = "tcp"


class CoreutilsOnStripes(Coreutils):
    """The same with files spread over four targets."""

    OPTIONS = ("--targets", "4", "--stripe-count", "4", "--stripe-size", "64KiB")
