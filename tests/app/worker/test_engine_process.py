"""The engine's process and its handle: answers, deaths, hangs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import numpy as np
import psutil
import pytest

from app.errors import CaptionerUnknown, EngineStartFailed
from app.jobs.job import Stage
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineAnswer, ignore_progress
from app.settings import Settings
from app.worker.engine.process import EngineDied, EngineProcess, EngineRaised
from app.worker.engine.shared_frames import map_frames, share_footage, write_frames
from extractors.child_process import open_shared_memory
from extractors.features import Audio, Footage, Frames

OBEDIENT = Settings(engine="tests.app.engines:Obedient", device="test")


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineProcess]:
    with EngineProcess(OBEDIENT) as running:
        yield running


def frames(colour: tuple[int, int, int], count: int = 3) -> Frames:
    pixels = np.full((count, 20, 30, 3), colour, np.uint8)
    return Frames(pixels, np.arange(count, dtype=np.float64), float(count))


def wish(*captioners: str) -> list[CaptionOptions]:
    return [CaptionOptions(captioner=name) for name in captioners]


def ask(engine: EngineProcess, *captioners: str) -> list[EngineAnswer]:
    """Runs one grey video a command and returns the answers."""
    engine.start()
    videos = [frames((9, 9, 9)) for _ in captioners]
    found = engine.run(videos, wish(*captioners), ignore_progress)
    return [answer for answer in found if isinstance(answer, EngineAnswer)]


def test_frames_arrive_as_they_were(engine: EngineProcess) -> None:
    told: list[tuple[str, float, str]] = []

    def hear(stage: Stage, share: float, text: str = "") -> None:
        told.append((stage, share, text))

    engine.start()
    videos = [frames((1, 2, 3)), frames((250, 0, 7), count=5)]
    first, second = engine.run(videos, wish("echo", "echo"), hear)
    assert isinstance(first, EngineAnswer)
    assert isinstance(second, EngineAnswer)
    assert first.answer.caption == "3 frames of 1 2 3"
    assert second.answer.caption == "5 frames of 250 0 7"
    assert told == [("extract", 0.5, ""), ("caption", 0.5, "of colours")]


def test_vectors_come_back_of_pictures_and_sentences(engine: EngineProcess) -> None:
    engine.start()
    vectors = engine.embed([frames((1, 2, 3), 1), frames((7, 8, 9), 1)], ["a dog", "a cat", "a bird"])
    assert vectors is not None
    assert (vectors.pictures.shape, vectors.sentences.shape) == ((2, 1024), (3, 1024))
    assert len(ask(engine, "echo")) == 1


def test_an_engine_that_is_interrupted_leaves_its_videos_and_stays(engine: EngineProcess) -> None:
    ask(engine, "echo")
    pid = engine.pid
    engine.interrupt()  # between two requests there is nothing to leave
    assert len(ask(engine, "echo")) == 1
    has_begun = threading.Event()

    def interrupt() -> None:
        has_begun.wait()
        time.sleep(0.3)  # until it sleeps
        engine.interrupt()

    timer = threading.Thread(target=interrupt)
    timer.start()
    with pytest.raises(EngineRaised, match="Interrupted"):
        engine.run([frames((9, 9, 9))], wish("sleep-600"), lambda stage, share, text="": has_begun.set())
    timer.join()
    assert len(ask(engine, "echo")) == 1
    assert engine.pid == pid


def test_sound_is_lent_behind_the_pixels() -> None:
    """Videos of odd sizes, with sound, without any, and without having been asked for it."""
    rng = np.random.default_rng(0)
    heard = Audio(rng.normal(size=1234).astype(np.float32), 32000)
    odd = Footage(rng.integers(0, 255, (1, 3, 5, 3), np.uint8), np.zeros(1), 1.0, 25.0, heard)
    silent = Footage(rng.integers(0, 255, (2, 7, 3, 3), np.uint8), np.arange(2.0), 2.0, 25.0)
    shared = open_shared_memory()
    try:
        lent_alone = share_footage(odd)  # in memory of its own, in another place each time
        places, descriptors = write_frames([lent_alone, silent, b"packed", frames((1, 2, 3)), odd], shared)
        assert descriptors == [lent_alone.descriptor]
        found = map_frames(places, shared, descriptors)
        lent_alone.close()
        assert found.pop(2) == b"packed"
        for video, lent in zip((odd, silent, frames((1, 2, 3)), odd), found, strict=True):
            assert isinstance(lent, Footage)
            np.testing.assert_array_equal(lent.pixels, video.pixels)
            sound = getattr(video, "sound", None)
            assert (lent.sound is None) == (sound is None)
            if sound is not None and lent.sound is not None:
                np.testing.assert_array_equal(lent.sound.samples, sound.samples)
                assert lent.sound.rate == 32000
    finally:
        os.close(shared)


def test_frames_in_memory_of_their_own_arrive_without_being_written_again(engine: EngineProcess) -> None:
    engine.start()
    plain = [frames((1, 2, 3)), frames((250, 0, 7), count=5), frames((8, 8, 8), count=2)]
    lent = [share_footage(Footage(each.pixels, each.pts, each.duration)) for each in plain]
    mixed = [lent[0], plain[1], lent[2]]
    for _ in range(2):  # as after an engine that died
        answers = engine.run(mixed, wish("echo", "echo", "echo"), ignore_progress)
        said = [answer.answer.caption for answer in answers if isinstance(answer, EngineAnswer)]
        assert said == ["3 frames of 1 2 3", "5 frames of 250 0 7", "2 frames of 8 8 8"]
    assert engine.pid is not None
    for each in lent:
        each.close()
    held = psutil.Process(engine.pid).num_fds()
    for _ in range(5):
        again = share_footage(Footage(plain[0].pixels, plain[0].pts, 3.0))
        engine.run([again], wish("echo"), ignore_progress)
        again.close()
    assert psutil.Process(engine.pid).num_fds() <= held


def test_it_serves_many_requests_without_growing(engine: EngineProcess) -> None:
    engine.start()
    video = frames((5, 5, 5), count=200)
    assert engine.pid is not None
    before = 0
    for turn in range(60):
        engine.run([video], wish("echo"), ignore_progress)
        if turn == 10:
            before = psutil.Process(engine.pid).memory_info().rss
    assert psutil.Process(engine.pid).memory_info().rss - before < 4 * video.pixels.nbytes


def test_a_refusal_concerns_one_video(engine: EngineProcess) -> None:
    engine.start()
    answers = engine.run([frames((9, 9, 9))] * 2, wish("refuse", "echo"), ignore_progress)
    assert isinstance(answers[0], CaptionerUnknown)
    assert isinstance(answers[1], EngineAnswer)


def test_an_error_leaves_the_engine_alive(engine: EngineProcess) -> None:
    engine.start()
    pid = engine.pid
    with pytest.raises(EngineRaised, match="does not like this one"):
        ask(engine, "raise")
    assert engine.pid == pid
    assert len(ask(engine, "echo")) == 1


@pytest.mark.parametrize(("command", "how"), [("segfault", "SIGSEGV"), ("exit-7", "exit code 7")])
def test_a_death_is_known_at_once_and_the_next_start_mends_it(
    engine: EngineProcess, command: str, how: str
) -> None:
    engine.start()
    pid = engine.pid
    began = time.monotonic()
    with pytest.raises(EngineDied, match=how):
        engine.run([frames((9, 9, 9))], wish(command), ignore_progress)
    assert time.monotonic() - began < 10
    assert not engine.is_ready
    assert len(ask(engine, "echo")) == 1
    assert engine.pid != pid


def test_what_holds_the_interpreter_lock_can_be_killed(engine: EngineProcess) -> None:
    engine.start()
    timer = threading.Timer(0.3, engine.kill)
    with pytest.raises(EngineDied, match="SIGKILL"):
        engine.run([frames((9, 9, 9))], wish("hang"), lambda stage, share, text="": timer.start())
    timer.join()


def test_death_between_jobs_is_seen(engine: EngineProcess) -> None:
    engine.start()
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)
    wait_until(lambda: not engine.is_ready)
    assert len(ask(engine, "echo")) == 1


def test_models_that_do_not_load_are_said_by_name() -> None:
    broken = EngineProcess(Settings(engine="tests.app.engines:Broken"))
    with pytest.raises(EngineStartFailed, match=r"none\.safetensors"):
        broken.start()
    assert broken.pid is None


@pytest.mark.parametrize("name", ["app.nowhere:Engine", "tests.app.engines:Nobody", "no name"])
def test_an_engine_that_is_not_there_is_told_with_the_setting_and_its_default(name: str) -> None:
    absent = EngineProcess(Settings(engine=name))
    with pytest.raises(EngineStartFailed, match=rf"_ENGINE names {name}.*app\.pipeline\.engine:Engine"):
        absent.start()


def test_loading_has_a_time_limit() -> None:
    slow = EngineProcess(Settings(engine="tests.app.engines:SlowToLoad", engine_start_seconds=0.01))
    with pytest.raises(EngineStartFailed, match=r"not warm within 0\.01 s"):
        slow.start()
    assert slow.pid is None


def wait_until(condition: object, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_captioners_are_measured_one_at_a_time_once_each() -> None:
    def seconds(engine: EngineProcess) -> dict[str, float | None]:
        return {info.name: info.seconds for info in engine.start().captioners}

    with EngineProcess(Settings(engine="tests.app.engines:Unmeasured", device="test")) as engine:
        assert seconds(engine) == {"echo": 0.5, "deadly": None, "late": None}
        assert engine.measure_next()  # and dies of it
        assert seconds(engine) == {"echo": 0.5, "deadly": None, "late": None}  # of the next engine
        assert engine.starts == 2
        assert engine.measure_next()
        assert not engine.measure_next()
        assert seconds(engine) == {"echo": 0.5, "deadly": None, "late": 2.0}
        engine.kill()
        assert seconds(engine) == {"echo": 0.5, "deadly": None, "late": 2.0}
        assert not engine.measure_next()
