"""Real programs on a cluster of several servers, some of which are killed."""

import json
import os
import shutil
import subprocess
import tempfile
import textwrap
import unittest
from pathlib import Path

from service import PREFIX, PROGRAM_S, Case, Mount, Server, clean_environment, free_port, isonomia, wait_for, why_no_mount

SERVERS = 3
VOLUMES = 8
KILLS = 6
# Trees of files that are there wherever these tests run.
SOURCES = [str(Path(unittest.__file__).parent), str(Path(json.__file__).parent)]


class Member(Server):
    """One server of a cluster."""

    def __init__(self, cluster, name):
        super().__init__()
        shutil.rmtree(self.temporary)
        self.temporary, self.name, self.cluster = cluster.directory, name, cluster
        self.log_path = cluster.directory / f"{name}.log"
        self.directory = cluster.directory / name
        self.key_file = cluster.key_file
        self.more = []

    def start(self):
        command = [isonomia(), "serve", "--cluster", str(self.cluster.file), "--name", self.name]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*command, "--key-file", str(self.key_file), *self.more],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=clean_environment(),
            )
        if not (line := self.process.stdout.readline()):
            raise AssertionError(f"{self.name} ended with {self.process.wait()}:\n{self.log()}")
        self.ready = json.loads(line)
        self.address = f"unix:{self.directory}.sock"
        return self

    def reach(self):
        return ["--server", self.address, "--key-file", str(self.key_file)]

    def status(self):
        """Its own, not that of the whole cluster."""
        return json.loads(self.operate("status", "--json", "--server", self.name).stdout)

    def remove(self):
        if self.process and self.process.poll() is None:
            self.kill()


class Cluster:
    """Several servers on this machine."""

    def __init__(self, servers=SERVERS, below=None):
        self.directory = Path(tempfile.mkdtemp(prefix="isonomia-acceptance-", dir=below))
        self.directory.chmod(0o755)
        self.key_file, self.file = self.directory / "key", self.directory / "cluster.toml"
        self.key_file.write_bytes(os.urandom(32))
        self.key_file.chmod(0o600)
        text = 'name = "acceptance"\nepoch = 1\n'
        for number in range(1, servers + 1):
            name, port = f"io{number}", free_port()
            text += textwrap.dedent(f"""
                [[server]]
                name = "{name}"
                number = {number}
                dir = "{self.directory}/{name}"
                listen = ["unix:{self.directory}/{name}.sock", "tcp:127.0.0.1:{port}"]
                targets = 2
                """)
        self.file.write_text(text)
        self.members = [Member(self, f"io{number}") for number in range(1, servers + 1)]

    def start(self):
        for member in self.members:
            member.start()
        return self

    def remove(self):
        for member in self.members:
            member.remove()
        shutil.rmtree(self.directory, ignore_errors=True)


class Clusters(Case):
    def cluster(self):
        cluster = Cluster()
        self.addCleanup(cluster.remove)
        return cluster.start()

    def mount(self, server):
        mount = Mount(server)
        self.addCleanup(mount.remove)
        return mount.start().place

    def volumes(self, server):
        names = [f"v{number}" for number in range(VOLUMES)]
        server.run("mkdir", *[f"{PREFIX}/{name}" for name in names])
        return names

    def test_programs_use_all_volumes_through_any_server(self):
        cluster = self.cluster()
        first, *_, last = cluster.members
        names = self.volumes(first)
        # Other programs that begin meanwhile put compiled modules beside the originals.
        sources = [f"{cluster.directory}/source{number}" for number in range(2)]
        for source, copy in zip(SOURCES, sources):
            shutil.copytree(source, copy, symlinks=True)
        for number, name in enumerate(names):
            member = cluster.members[number % SERVERS]
            member.run("cp", "-a", sources[min(number, 1)], f"{PREFIX}/{name}/copy")
        for number, name in enumerate(names):
            last.run("diff", "-r", "--no-dereference", sources[min(number, 1)], f"{PREFIX}/{name}/copy")
        self.assertEqual(first.run("ls", PREFIX).stdout.split(), names)
        # Programs that meet EXDEV copy.
        first.run("mv", f"{PREFIX}/v1/copy", f"{PREFIX}/v2/moved")
        last.run("diff", "-r", "--no-dereference", sources[1], f"{PREFIX}/v2/moved")
        last.run("mv", f"{PREFIX}/v1", f"{PREFIX}/renamed")
        first.run("rmdir", f"{PREFIX}/renamed")
        last.run("rm", "-r", f"{PREFIX}/v2")
        self.assertEqual(first.run("ls", PREFIX).stdout.split(), ["v0", *names[3:]])
        used = [member.status()["cluster"]["volumes"] for member in cluster.members]
        self.assertEqual(sum(map(len, used)), VOLUMES - 2)
        self.assertGreater(sum(map(bool, used)), 1, used)

    def test_a_repository_lives_on_it(self):
        cluster = self.cluster()
        self.volumes(cluster.members[0])
        script = """
            set -e
            git init -q one && cd one && git config user.name a && git config user.email a@b
            for i in 1 2 3 4 5; do echo $i > f$i; git add f$i; git commit -qm $i; done
            git clone -q . ../../v2/two && cd ../../v2/two && git fsck --strict && git log --oneline | wc -l
        """
        done = cluster.members[1].run("sh", "-c", f"cd {PREFIX}/v1 && {script}", env={"HOME": "/nonexistent"})
        self.assertEqual(done.stdout.strip(), "5")

    @unittest.skipUnless(os.geteuid() == 0, "needs root to be another user")
    def test_an_ordinary_user_begins_anywhere_and_gets_no_further_than_he_may(self):
        cluster = self.cluster()
        owner, member = cluster.members[0], cluster.members[1]
        self.volumes(owner)
        owner.run("chmod", "700", f"{PREFIX}/v0")
        own_way = "mkdir rel && echo r >rel/f && cat rel/f && mv rel more && cat more/../more/f && rm more/f && rmdir more"
        program = textwrap.dedent(f"""
            import os
            made = [f"{PREFIX}/u{{number}}" for number in range({VOLUMES})]
            for path in made:
                os.mkdir(path)
                with open(f"{{path}}/file", "w") as file:
                    file.write(path)
            # By a descriptor of the root, which another server than theirs gave, also after exec.
            root = os.open("{PREFIX}", os.O_RDONLY | os.O_DIRECTORY)
            assert sorted(os.listdir(root))[: len(made)] == sorted(map(os.path.basename, made))
            os.fsync(root)
            for path in made:
                name = os.path.basename(path)
                assert os.stat(name, dir_fd=root).st_uid == os.getuid()
                os.rename(f"{{name}}/file", f"{{name}}/renamed", src_dir_fd=root, dst_dir_fd=root)
                with open(os.open(f"{{name}}/renamed", os.O_RDWR, dir_fd=root)) as file:
                    assert file.read() == path
            os.set_inheritable(root, True)
            for call in (
                lambda: os.listdir("{PREFIX}/v0"),
                lambda: os.open("{PREFIX}/v1/new", os.O_CREAT | os.O_WRONLY),
                lambda: os.rmdir("{PREFIX}/v2"),
                lambda: os.rename("{PREFIX}/v3", "{PREFIX}/mine"),
                lambda: os.chmod("{PREFIX}/v4", 0o777),
            ):
                try:
                    call()
                    raise SystemExit("that was not to be")
                except PermissionError:
                    pass
            try:
                os.rename(made[0], made[1])
                raise SystemExit("nobody checked whose that is")
            except FileExistsError:
                pass
            os.execvp("python3", ["python3", "-c", "import os, sys; print(len(os.listdir(int(sys.argv[1]))))", str(root)])
        """)
        as_nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        for script in (["python3", "-c", program], ["sh", "-c", f"cd {PREFIX} && ls && {own_way}"]):
            command = [*as_nobody, *member.command(*script)]
            environment = clean_environment() | {"ISONOMIA_SERVER_USER": "root"}
            done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_S, env=environment)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    @unittest.skipIf(why_no_mount(), why_no_mount())
    def test_mounts_of_two_servers_show_each_others_mapped_memory(self):
        cluster = self.cluster()
        names = self.volumes(cluster.members[0])
        places = [self.mount(member) for member in cluster.members[:2]]
        program = textwrap.dedent("""
            import mmap, sys
            path, offset, text = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()
            with open(path, "r+b") as file, mmap.mmap(file.fileno(), 8192) as memory:
                print(memory[:8192].rstrip(b"\\0").replace(b"\\0", b"").decode())
                memory[offset : offset + len(text)] = text
        """)
        for name in names:
            (places[0] / name / "file").write_bytes(bytes(8192))
            seen = []
            for repeat in range(6):
                path = places[repeat % 2] / name / "file"
                command = ["python3", "-c", program, str(path), str(repeat * 1000), f"<{repeat}>"]
                done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_S, env=clean_environment())
                self.assertEqual((done.returncode, done.stderr), (0, ""), name)
                self.assertEqual(done.stdout.strip(), "".join(seen), name)
                seen.append(f"<{repeat}>")

    @unittest.skipIf(why_no_mount(), why_no_mount())
    def test_a_mount_has_file_systems_with_one_name_space(self):
        cluster = self.cluster()
        place = self.mount(cluster.members[2])
        for name in ["a", "b", "c", "d"]:
            (place / name / "sub").mkdir(parents=True)
            (place / name / "sub" / "file").write_text(name)
        self.assertEqual(sorted(os.listdir(place)), ["a", "b", "c", "d"])
        with self.assertRaises(OSError) as refused:
            os.rename(place / "a" / "sub", place / "b" / "sub2")
        self.assertEqual(refused.exception.strerror, "Invalid cross-device link")
        with self.assertRaises(OSError) as refused:
            os.link(place / "a" / "sub" / "file", place / "b" / "link")
        self.assertEqual(refused.exception.strerror, "Invalid cross-device link")
        os.rename(place / "a", place / "z")
        self.assertEqual((place / "z" / "sub" / "file").read_text(), "a")
        with self.assertRaises(OSError):
            (place / "z").rmdir()
        shutil.rmtree(place / "z")
        self.assertEqual(sorted(os.listdir(place)), ["b", "c", "d"])
        (place / "z").write_text("a file now")
        self.assertEqual((place / "z").read_text(), "a file now")

    def test_what_was_synced_survives_the_death_of_one_server_after_the_other(self):
        cluster = self.cluster()
        names = self.volumes(cluster.members[0])
        writer = textwrap.dedent(f"""
            import os, sys
            names = {names!r}
            for number in range(1_000_000):
                path = f"{PREFIX}/{{names[number % len(names)]}}/{{number}}"
                descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
                os.write(descriptor, str(number).encode() * 1000)
                os.fsync(descriptor)
                os.close(descriptor)
                print(number, flush=True)
        """)
        process = self.program(cluster.members[0], "python3", "-c", writer, timeout_s=60)
        done = -1

        def more(count):
            nonlocal done
            until = done + count
            while done < until:
                line = process.stdout.readline()
                if not line:
                    raise AssertionError(f"the writer ended with {process.wait()}: {process.stderr.read()}")
                done = int(line)

        more(20)
        for repeat in range(KILLS):
            member = cluster.members[repeat % SERVERS]
            member.kill()
            member.start()
            more(20)
        process.kill()
        for member in cluster.members:
            member.kill()
        for member in cluster.members:
            member.start()
        checker = textwrap.dedent(f"""
            names = {names!r}
            for number in range({done + 1}):
                with open(f"{PREFIX}/{{names[number % len(names)]}}/{{number}}") as file:
                    assert file.read() == str(number) * 1000, number
            print("all there")
        """)
        self.assertEqual(cluster.members[-1].run("python3", "-c", checker).stdout.strip(), "all there")

    def test_no_volume_is_lost_or_made_twice_when_servers_die(self):
        cluster = self.cluster()
        maker = textwrap.dedent(f"""
            import os, sys
            for number in range(1_000_000):
                name = f"{{sys.argv[1]}}-{{number}}"
                try:
                    os.mkdir(f"{PREFIX}/{{name}}")
                    open(f"{PREFIX}/{{name}}/mine", "x").close()
                    made = "made"
                    if number % 3 == 0:
                        made = "unsure"
                        os.remove(f"{PREFIX}/{{name}}/mine")
                        os.rmdir(f"{PREFIX}/{{name}}")
                        made = "removed"
                except OSError as error:
                    made = "unsure"
                print(name, made, flush=True)
        """)
        makers = [
            self.program(member, "python3", "-c", maker, member.name, timeout_s=30) for member in cluster.members[:2]
        ]
        outcomes = {}

        def more(count):
            for process in makers:
                for _ in range(count):
                    line = process.stdout.readline()
                    self.assertTrue(line, "the maker ended")
                    name, made = line.split()
                    outcomes[name] = made

        more(10)
        for repeat in range(KILLS):
            member = cluster.members[repeat % SERVERS]
            member.kill()
            member.start()
            more(10)
        for process in makers:
            process.kill()
            # What it has told and nobody has read.
            for line in process.stdout.read().splitlines():
                name, made = line.split()
                outcomes[name] = made
        last = cluster.members[-1]

        def settled():
            """what is listed is what the servers have: the cluster goes on with what a maker asked for before it died"""
            there = last.run("ls", PREFIX).stdout.split()
            hosts = [{volume["name"] for volume in member.status()["cluster"]["volumes"]} for member in cluster.members]
            return there if sorted(name for names in hosts for name in names) == sorted(there) else None

        there = wait_for(settled, 60)
        self.assertEqual(len(there), len(set(there)))
        for name, made in outcomes.items():
            if made == "made":
                self.assertIn(name, there)
                self.assertEqual(last.run("ls", f"{PREFIX}/{name}").stdout.split(), ["mine"], name)
            elif made == "removed":
                self.assertNotIn(name, there)
        self.assertGreater(sum(made != "unsure" for made in outcomes.values()), 20, outcomes)

    def test_a_server_with_another_directory_is_refused(self):
        cluster = self.cluster()
        self.volumes(cluster.members[0])
        second, third = cluster.members[1:]
        second.stop()
        third.stop()
        shutil.move(second.directory, second.directory.with_suffix(".kept"))
        shutil.move(third.directory, second.directory)
        with self.assertRaises(AssertionError) as refused:
            second.start()
        self.assertIn("of server 3", str(refused.exception))
