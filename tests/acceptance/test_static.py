"""Static programs in C and Fortran that were linked with the client."""

import subprocess
import tempfile
from pathlib import Path

import service
from service import PREFIX, Case

PROGRAMS = Path(__file__).resolve().parent / "programs"


class Static(Case):
    def check(self, compiler, source, content):
        self.needs(compiler)
        directory = tempfile.TemporaryDirectory(prefix="isonomia-local-")
        self.addCleanup(directory.cleanup)
        local = Path(directory.name)
        probe = local / f"probe{source.suffix}"
        probe.write_text("end\n" if source.suffix == ".f90" else "int main(void) { return 0; }\n")
        if subprocess.run([compiler, "-static", probe, "-o", local / "probe"], capture_output=True, timeout=60).returncode:
            self.skipTest(f"{compiler} cannot link static programs here")
        flags = subprocess.run([service.isonomia(), "link-flags"], check=True, capture_output=True, text=True, timeout=60)
        program = local / "program"
        command = [compiler, "-static", source, "-o", program, *flags.stdout.split()]
        linked = subprocess.run(command, capture_output=True, text=True, timeout=service.PROGRAM_S)
        self.assertEqual(linked.returncode, 0, linked.stderr)
        server = self.server()
        for path in [f"{PREFIX}/f", str(local / "f")]:
            env = service.clean_environment() | {"ISONOMIA_SERVER": server.address}
            done = subprocess.run([program, path], env=env, capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
            self.assertEqual(done.stdout.split()[0], str(len(content)))
        self.assertEqual(server.run("cat", f"{PREFIX}/f").stdout, content)
        self.assertEqual((local / "f").read_text(), content)

    def test_c(self):
        self.check("gcc", PROGRAMS / "static.c", "hello, world 2\n")

    def test_fortran(self):
        self.check("gfortran", PROGRAMS / "static.f90", "from Fortran 42\n")
