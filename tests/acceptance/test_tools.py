"""tar, rsync, fio, git, and a compiler."""

import os
import shutil
import subprocess

from service import SharedServerCase

TREE = """
mkdir -p src/a/b src/c
for i in $(seq 40); do seq $((i * 97)) > src/a/f$i; done
head -c 5000000 /dev/urandom > src/a/b/random
ln -s ../a/f1 src/c/link; ln src/a/f2 src/c/hard; : > src/c/empty; chmod 640 src/a/f3; touch -d @1000000000 src/a/f4
"""
SAME = "diff -r --no-dereference src"


class Tools(SharedServerCase):
    def make_tree(self):
        """The same tree on a local file system and on the server."""
        subprocess.run(["bash", "-c", TREE], cwd=self.local, check=True, timeout=60)
        self.bash(f"cp -a {self.local}/src .")

    def test_tar_both_ways(self):
        self.make_tree()
        self.bash(f"tar -cf all.tar src && mkdir out && tar -xpf all.tar -C out && {SAME} out/src && tar -df all.tar")
        listing = "tar -tvf all.tar --full-time | sort"
        subprocess.run(["tar", "-xpf", "-", "-C", self.local, "--one-top-level=back"], check=True, timeout=60,
                       input=self.bash("cat all.tar", text=False).stdout)
        self.assertEqual("", subprocess.run(["diff", "-r", self.local / "src", self.local / "back/src"],
                                            capture_output=True, text=True, timeout=60).stdout)
        self.assertIn("-> ../a/f1", self.bash(listing).stdout)

    def test_tar_compressed_through_a_pipe(self):
        self.make_tree()
        self.bash(f"tar -cz src | tee all.tgz | tar -xz --one-top-level=out && {SAME} out/src && gzip -t all.tgz")

    def test_rsync_transfers_once(self):
        self.make_tree()
        first = self.bash(f"rsync -aHi {self.local}/src/ dest/ && {SAME} dest").stdout
        self.assertIn(">f+++++++++ a/b/random", first)
        self.assertEqual("", self.bash(f"rsync -aHi {self.local}/src/ dest/").stdout)
        self.assertEqual("", self.bash("rsync -aHi --checksum dest/ " + f"{self.local}/src/").stdout)

    def test_rsync_within_the_server_with_changes(self):
        self.make_tree()
        out = self.bash(
            "rsync -a src/ dest/; echo more >> src/a/f5; touch -d @1 src/a/f5; rm src/a/f6; rsync -ai --delete --inplace src/ dest/; "
            f"{SAME} dest && rsync -ai --delete src/ dest/"
        ).stdout.split("\n")
        self.assertEqual([line for line in out if line and "/ " not in line and not line.endswith("/")],
                         ["*deleting   a/f6", ">f.st...... a/f5"])

    def test_fio_verifies_what_it_wrote(self):
        for pattern in ["write", "randrw"]:
            with self.subTest(pattern):
                self.fio(f"--rw={pattern}", "--bs=4k-256k", "--size=24M", "--numjobs=2")

    def test_fio_with_threads_and_fsync(self):
        self.fio("--rw=randwrite", "--bs=4k", "--size=8M", "--numjobs=4", "--thread", "--fsync=32")

    def fio(self, *options):
        self.run_here("fio", "--name=j", f"--directory={self.directory}", "--ioengine=psync", "--verify=crc32c",
                      "--verify_fatal=1", "--do_verify=1", "--group_reporting", "--minimal", *options,
                      # fio keeps its own state where it may be mapped.
                      env={"TMPDIR": str(self.local)})

    def test_gcc_builds_a_program_from_sources_on_the_server(self):
        self.bash(
            "printf '#include <stdio.h>\\n#include \"part.h\"\\nint main(void) { printf(\"%%d\\\\n\", part()); }\\n' > main.c;"
            "echo 'int part(void);' > part.h; printf '#include \"part.h\"\\nint part(void) { return 42; }\\n' > part.c"
        )
        # Objects and the program itself go where the linker may map them.
        self.bash(f"gcc -O1 -c main.c -o {self.local}/main.o && gcc -O1 -c part.c -o {self.local}/part.o")
        self.bash(f"gcc {self.local}/main.o {self.local}/part.o -o {self.local}/program && cp {self.local}/program copy")
        self.bash(f"cp copy {self.local}/program2 && chmod +x {self.local}/program2")
        self.assertEqual("42\n", subprocess.run([self.local / "program2"], capture_output=True, text=True).stdout)

    def test_dd_through_direct_paths_in_many_processes(self):
        names = range(6)
        self.bash("for i in %s; do dd if=/dev/zero of=z$i bs=256k count=40 status=none conv=fsync & done; wait" %
                  " ".join(map(str, names)))
        sizes = self.bash("stat -c %s z*").stdout.split()
        self.assertEqual(sizes, [str(40 << 18)] * len(names))

    def test_permissions_are_the_kernels_word(self):
        if os.geteuid() != 0 or not shutil.which("setpriv"):
            self.skipTest("needs root to be another user")
        self.bash("umask 022; echo secret > mine; chmod 600 mine; mkdir open; chmod 777 open")
        other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        denied = self.run_here(*other, "cat", f"{self.directory}/mine", check=False)
        self.assertEqual((denied.returncode, "Permission denied" in denied.stderr), (1, True), denied.stderr)
        self.run_here(*other, "bash", "-c", f"echo x > {self.directory}/open/theirs")
        self.assertEqual("65534 65534\n", self.bash("stat -c '%u %g' open/theirs").stdout)


class ToolsOverTcp(Tools):
    """The same with a key over TCP, where the key stands for the server's user."""

    TRANSPORT = "tcp"
    test_permissions_are_the_kernels_word = None

