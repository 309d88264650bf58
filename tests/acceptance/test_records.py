"""A live server's record, simulated: what comes of it is what the server did."""

import json
import subprocess
import textwrap

from service import PREFIX, PROGRAM_S, Case, clean_environment, isonomia, wait_for

# So slow that a busy machine is fast enough beside it.
BANDWIDTH = "16MiB/s"
SHARES_APART = 0.03
MAKESPANS_APART = 0.05
# Records at most, of which the last one counts. One in which the server had no processor for a while took longer than its
# simulation; a simulation that is wrong is so each time.
RECORDS = 3
# One that has three times the weight, two that go on, and one that computes in between and is done early.
JOBS = {"heavy": (40, 0, 2), "light": (24, 0, 2), "other": (24, 0, 2), "pauses": (4, 0.2, 1)}
# So many MiB, by so many processes at once, with a pause after each MiB.
WRITES = textwrap.dedent("""
    import os, sys, time
    path, count, pause_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    for at in range(count):
        for part in range(4):
            os.pwrite(file, bytes(256 << 10), at * (1 << 20) + part * (256 << 10))
        time.sleep(pause_s)
""")


class Records(Case):
    # Times and shares are looked at.
    alone = True

    def simulated(self):
        """What a simulation of a record says of both."""
        server = self.server("--bandwidth", BANDWIDTH, "--trust-clients", "--policy", "job-fair{heavy=3}")
        to = server.temporary / "decisions.jsonl"
        with subprocess.Popen(
            [isonomia(), "record", str(to), "--for", "60s", *server.reach()], env=clean_environment(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as recording:  # fmt: skip
            wait_for(to.exists, 20)
            programs = [
                self.program(
                    server, "python3", "-c", WRITES, f"{PREFIX}/{job}-{number}", str(mib), str(pause_s),
                    job=job, timeout_s=120,
                )
                for job, (mib, pause_s, processes) in JOBS.items() for number in range(processes)
            ]  # fmt: skip
            for program in programs:
                _, errors = program.communicate(timeout=120)
                self.assertEqual(0, program.returncode, errors)
            recording.send_signal(2)
            _, errors = recording.communicate(timeout=PROGRAM_S)
        command = [isonomia(), "sim", "--trace", str(to), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=clean_environment())
        self.assertEqual(0, done.returncode, done.stderr)
        server.stop()
        return json.loads(done.stdout)

    def test_a_simulation_of_a_record_is_what_the_server_did(self):
        for _ in range(RECORDS):
            found = self.simulated()
            makespans = found["recorded_makespan_ns"], found["simulated_makespan_ns"]
            if makespans[0] - makespans[1] <= MAKESPANS_APART * makespans[0]:
                break
        shares = lambda job: [round(job[run]["share"], 3) for run in ("recorded", "simulated")]  # noqa: E731
        told = {job["job"]: shares(job) for job in found["jobs"]}
        took_s = [round(makespan / 1e9, 2) for makespan in makespans]
        print(f"recorded and simulated: shares {told}, makespans {took_s} s", flush=True)
        self.assertEqual(set(JOBS), {job["job"] for job in found["jobs"]} & set(JOBS))
        for job in found["jobs"]:
            self.assertLessEqual(abs(job["share_difference"]), SHARES_APART, told)
        self.assertLessEqual(abs(makespans[1] - makespans[0]), MAKESPANS_APART * makespans[0])
        # Shares that are due are in it, so that both could not be wrong in the same way.
        self.assertGreater(told["heavy"][0], 1.5 * told["light"][0], told)
