"""An assistant that goes on where it was: a conversation in a store, continued by a second agent after the first ended.

Run it twice with the same folder, and it remembers what was said the first time.
"""

from __future__ import annotations

from treadle.host import Ask, ConversationStore, HostAgent

STORE = "conversations.db"


def decide(ask: Ask) -> bool:
    print(f"   asked: {ask.title}")
    return False


def talk(text: str) -> None:
    with HostAgent(store=STORE, session_id="example", approvals=decide) as agent:
        result = agent.run_conversation(text)
        print(f"user: {text}")
        print(f"agent: {result.final_response or result.error}")
        print(f"   {len(result.messages)} messages, thread {result.thread_id}, turn {agent.user_turn_count}")
        for notice in result.notices:
            print(f"   note: {notice}")


def main() -> None:
    talk("Hello! Please remember the quokka.")
    talk("What was it that I asked you to remember?")  # the thread is resumed
    store = ConversationStore(STORE)
    for hit in store.search("quokka"):
        print(f"found: {hit.role}: {hit.snippet}")
    store.close()


if __name__ == "__main__":
    main()
