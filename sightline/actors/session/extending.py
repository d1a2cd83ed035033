"""Extensions of a LIVE session.

Without escrow an extension is one commit. With escrow the contract must take its amount first: the session records what
it asks for, a helper waits for the chain, and meanwhile the session goes on with its former maximum. The extension
counts when the helper's answer is stored, whether or not its caller still waits.
"""

from functools import partial
from typing import Final, final

from sightline.actors.deps import Deps
from sightline.actors.kernel import Context, Envelope, Lane, OverloadedError
from sightline.actors.messages import ExtendSession, ExtensionFailed, HoldExtended, ResumeExtending, SessionMessage
from sightline.actors.session.durable import DurableSession
from sightline.domain.errors import RefusedError
from sightline.domain.session.messages import BeginExtending, Extend, ExtensionRefused, Step
from sightline.domain.session.model import Live, Session
from sightline.domain.units import SECOND_MS
from sightline.domain.value import replace
from sightline.ports.store import HoldGrowth

RESUME_TIMER: Final = "extending"
RESUME_AFTER_MS: Final = SECOND_MS
WAITING_MAX: Final = 8
"""Calls that may wait for one extension: repeats of one call."""


@final
class Extending:
    """The extension that one session asks the contract for, and the calls that wait for it."""

    def __init__(self, context: Context[SessionMessage], deps: Deps, durable: DurableSession) -> None:
        self._context = context
        self._deps = deps
        self._durable = durable
        self._waiting: list[tuple[Envelope[SessionMessage], ExtendSession]] = []
        self._is_asking = False

    async def extend(self, envelope: Envelope[SessionMessage], command: ExtendSession) -> None:
        """Extend the session, or ask the contract for the amount and answer later.

        Raises:
            RefusedError: The machine, the payer's funds or a limit of the API key refuses it.
        """
        session, extension = self._durable.require(), command.extension
        growth = HoldGrowth(
            payer_address=session.terms.payer_address, amount=extension.amount, spending=command.spending,
            is_enforced=command.is_hold_enforced, unfunded_max=self._deps.limits.unfunded_sessions_max,
        )  # fmt: skip
        is_known = any(known.id == extension.id for known in session.extensions)
        if is_known or self._deps.escrow is None or session.terms.consent is None:
            step = await self._durable.step(Extend(extension))
            answer = await self._durable.commit_command(step, command.caller, growth=growth if step.events else None)
            envelope.reply(command, answer)
            return
        step = await self._durable.step(BeginExtending(extension))
        if step.session is not self._durable.session:
            trial = replace(growth, is_enforced=False, unfunded_max=0, is_trial=True)
            await self._durable.commit(step, growth=trial)
        if len(self._waiting) >= WAITING_MAX:
            raise OverloadedError("too many calls wait for this extension")
        self._waiting.append((envelope, command))
        self._ask()

    def resume(self) -> None:
        """Ask again for what the contract was asked for and has not answered."""
        session = self._durable.session
        if session is not None and isinstance(session.phase, Live) and session.extending is not None:
            self._ask()

    async def take(self, outcome: HoldExtended | ExtensionFailed) -> None:
        """Store how the contract has answered, and answer the calls that wait."""
        self._is_asking = False
        session = self._durable.require()
        extending = session.extending
        if extending is None or extending.id != outcome.extension_id:
            return
        waiting, self._waiting = self._waiting, []
        if isinstance(outcome, ExtensionFailed):
            for envelope, _ in waiting:
                envelope.fail_if_open(outcome.error)
            await self._fail(outcome.error)
            return
        try:
            step = await self._durable.step(Extend(replace(extending, tx_hash=outcome.tx_hash)))
            payer = session.terms.payer_address
            growth: HoldGrowth | None = HoldGrowth(payer_address=payer, amount=extending.amount, is_taken=True)
            if not waiting:
                await self._durable.commit(step, growth=growth)
            for envelope, command in waiting:
                envelope.reply(command, await self._durable.commit_command(step, command.caller, growth=growth))
                step, growth = Step(self._durable.require()), None
        except Exception as error:
            for envelope, _ in waiting:
                envelope.fail_if_open(error)
            if not isinstance(error, RefusedError):  # the session has ended meanwhile
                raise

    def _ask(self) -> None:
        session = self._durable.require()
        extending = session.extending
        if extending is None or self._is_asking:
            return
        self._is_asking = True
        self._context.spawn(
            partial(_hold_extended, self._deps, session, extending.id),
            on_value=lambda done: done,
            on_error=partial(ExtensionFailed, extending.id),
            lane=Lane.CONTROL,
        )

    async def _fail(self, error: Exception) -> None:
        """Forget a refused extension; ask again later for one of unknown outcome."""
        session = self._durable.require()
        if not isinstance(session.phase, Live) or session.extending is None:
            return
        if isinstance(error, RefusedError):
            await self._durable.commit(await self._durable.step(ExtensionRefused(session.extending.id)))
        else:
            at_ms = self._context.clock.now_ms() + RESUME_AFTER_MS
            self._context.timers.set(self._context.ref, at_ms, ResumeExtending(), name=RESUME_TIMER)


async def _hold_extended(deps: Deps, session: Session, extension_id: str) -> HoldExtended:
    """Wait until the contract has taken the amount of the extension that the session asks for."""
    assert deps.escrow is not None, "only a service with escrow asks the contract"
    return HoldExtended(extension_id, await deps.escrow.extend_hold(session))
