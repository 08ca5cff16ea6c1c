"""A kernel's compiled forms are found again by key, and what is not compiled is launched as ever."""

from types import SimpleNamespace

from unnoise.kernels.launching import Launcher, class_of


class Kernel:
    """Writes down what it is asked; `compiles` says whether a launch gives something compiled."""

    def __init__(self, compiles=True):
        self.compiles, self.asked = compiles, []

    def __getitem__(self, grid):
        return lambda *arguments: self._made(grid, arguments)

    def _made(self, grid, arguments):
        self.asked.append((grid, arguments))
        if not self.compiles:
            return None
        form = SimpleNamespace(packed_metadata=())
        again = type("Compiled", (), {"__getitem__": lambda _, grid: lambda *a: self.asked.append(("again", grid, a))})
        known = again()
        known.packed_metadata = form.packed_metadata
        return known


def test_the_second_launch_with_a_key_goes_straight_to_what_was_compiled():
    kernel = Kernel()
    launch = Launcher(kernel)
    launch((2, 3), "a", 1)
    launch((4, 5), "a", 2)
    launch((4, 5), "b", 3)
    assert kernel.asked == [((2, 3), (1,)), ("again", (4, 5, 1), (2,)), ((4, 5), (3,))]


def test_an_interpreter_is_asked_every_time():
    kernel = Kernel(compiles=False)
    launch = Launcher(kernel)
    for i in range(3):
        launch((1, 1), "a", i)
    assert [arguments for _, arguments in kernel.asked] == [(0,), (1,), (2,)]


def test_classes_of_whole_numbers_are_what_a_compiler_looks_at():
    assert class_of(1) == (True, False, False) and class_of(48) == (False, True, False)
    assert class_of(7) == (False, False, False) and class_of(2**31) == (False, True, True)
