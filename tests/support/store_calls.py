"""What tests of a store ask for in one call, and a broker in several."""

from embermq.store.interface import Queue, Retained, SavedSession, Store
from embermq.store.records import SessionOpened, SharedQueueOpened

MUCH = 1 << 40


def open_session(store: Store, client_id: str, user_name: str, session_expiry_s: int) -> SavedSession:
    session_id = store.sessions.new_id()
    store.append(SessionOpened(session_id, client_id, user_name, session_expiry_s))
    queue = store.sessions.queue(session_id)
    return SavedSession(session_id, client_id, user_name, session_expiry_s, 0, [], set(), [], queue)


def open_shared_queue(store: Store, share_filter: str) -> tuple[int, Queue]:
    queue_id = store.sessions.new_id()
    store.append(SharedQueueOpened(queue_id, share_filter))
    queue = store.sessions.queue(queue_id)
    assert queue is not None
    return queue_id, queue


def retained_scan(store: Store, topic_filter: str, after_topic_name: str, limit: int) -> list[Retained]:
    """Up to `limit` retained messages; fewer only if there are no more."""
    found: list[Retained] = []
    while len(found) < limit:
        piece = store.retained.piece(topic_filter, after_topic_name, limit - len(found), MUCH, MUCH)
        found += piece.found()
        if piece.done:
            break
        after_topic_name = piece.after_topic_name
    return found
