"""Nothing is said that nobody asked for: at import, at exit, in __del__, in threads, in forks."""

import unittest

from support import Case


class Quiet(Case):
    def test_importing_loads_no_driver(self):
        printed = self.quiet("""
            import sys, cuddy
            print('libcuda' in open('/proc/self/maps').read(), 'torch' in sys.modules, cuddy.__version__)
        """)
        self.assertEqual(printed.split()[:2], ["False", "False"])

    def test_everything_alive_at_exit(self):
        for flags in ((), ("-X", "dev")):
            self.quiet(
                """
                import threading, time, cuddy
                keep = cuddy.empty(1 << 20)
                pool = cuddy.pool()
                pool.__enter__()
                ring = [cuddy.empty(64)]
                ring.append(ring)
                capsule = keep.__dlpack__()
                local = threading.local()
                local.kept = cuddy.empty(5)
                class Late:
                    def __del__(self, block=cuddy.empty(7)):
                        block.free()
                late = Late()
                def hold(held=cuddy.empty(100)):
                    mine = cuddy.empty(3 << 20)
                    while True:
                        cuddy.empty(1000)
                threading.Thread(target=hold, daemon=True).start()
                time.sleep(0.05)
                """,
                *flags,
            )

    def test_exit_codes_are_the_programs_own(self):
        done = self.run_program("import sys, cuddy\nkept = cuddy.empty(8)\nwith cuddy.pool():\n    sys.exit(7)")
        self.assertEqual((done.returncode, done.stderr), (7, ""))

    def test_one_error_is_one_error(self):
        done = self.run_program("import cuddy\ncuddy.empty(1 << 45)")
        self.assertEqual(done.stderr.count("Traceback"), 1)
        self.assertIn("cuddy._errors.OutOfMemoryError: 32.0 TiB", done.stderr)
        self.assertNotIn("Exception ignored", done.stderr)

    def test_a_child_forked_after_use(self):
        printed = self.quiet("""
            import os, cuddy
            held = cuddy.empty(1 << 20)
            child = os.fork()
            if child == 0:
                try:
                    cuddy.empty(1)
                except cuddy.Error as error:
                    print(error.status == cuddy.Status.FORKED, flush=True)
                try:
                    held.free()
                except cuddy.Error as error:
                    print(error.status == cuddy.Status.FORKED, flush=True)
                del held
                os._exit(0)
            print(os.waitpid(child, 0)[1], held.nbytes)
        """)
        self.assertEqual(printed, "True\nTrue\n0 1048576\n")

    def test_a_child_that_runs_to_its_end(self):
        self.quiet("""
            import os, sys, cuddy
            held, pool = cuddy.empty(1 << 20), cuddy.pool()
            child = os.fork()
            if child:
                os.waitpid(child, 0)
            """)

    def test_a_child_forked_before_use_and_spawned_ones(self):
        printed = self.quiet("""
            import os, cuddy
            child = os.fork()
            with cuddy.empty(1 << 20):
                os.write(1, b"%d\\n" % cuddy.memory_allocated())  # at once, beside the other
            if child:
                os.waitpid(child, 0)
        """)
        self.assertEqual(printed, "1048576\n" * 2)

    def test_without_a_driver(self):
        printed = self.quiet(
            """
            import cuddy
            print(cuddy.memory_allocated())
            try:
                cuddy.empty(1)
            except cuddy.Error as error:
                print(error.status.name)
            """,
            LD_LIBRARY_PATH="",
        )
        self.assertEqual(printed, "0\nNO_DRIVER\n")

    def test_a_library_that_is_not_there(self):
        done = self.run_program("import cuddy", CUDDY_LIBRARY="/nowhere/libcuddy.so", LD_LIBRARY_PATH="")
        self.assertIn("ImportError: CUDDY_LIBRARY names /nowhere/libcuddy.so", done.stderr)


if __name__ == "__main__":
    unittest.main()
