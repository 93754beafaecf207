// Adds the events of a branch to its page as they happen. Without this script the page shows those up to now.
"use strict";
const feed = document.getElementById("feed");
const state = document.getElementById("feed-state");
const reload = state?.querySelector("a");
let source = null;
let after = feed?.dataset.after;

function say(text, isOver) {
  state.replaceChildren(`${text} `);
  if (isOver) state.append(reload);
}

function line(event) {
  const item = document.createElement("li");
  const time = document.createElement("time");
  time.dateTime = new Date(event.time_us / 1000).toISOString();
  time.textContent = time.dateTime.replace("T", " ").replace(/\.\d+Z$/, " UTC");
  const mark = document.createElement("span");
  mark.className = "mark";
  mark.textContent = event.kind;
  // The server has escaped what is invisible or changes the direction of the text.
  const text = document.createElement("bdi");
  text.textContent = event.text;
  item.append(time, " ", mark, " ", text);
  if (event.commit_id) {
    const link = document.createElement("a");
    link.className = "id";
    link.href = `${feed.dataset.commits}/${encodeURIComponent(event.commit_id)}`;
    link.textContent = event.commit_id.slice(0, 12);
    item.append(" ", link);
  }
  return item;
}

function open() {
  const list = feed.querySelector("ol");
  source = new EventSource(`${feed.dataset.source}?after=${encodeURIComponent(after)}`);
  source.onopen = () => say("Live.", false);
  source.onmessage = (message) => {
    after = message.lastEventId;
    list.prepend(line(JSON.parse(message.data)));
    while (list.children.length > Number(feed.dataset.most)) list.lastElementChild.remove();
  };
  source.onerror = () => {
    // A browser does not connect again after an answer that is an error.
    const isOver = source.readyState === EventSource.CLOSED;
    say(isOver ? "The feed has ended, or it may not be read now." : "The connection is lost; trying again.", isOver);
  };
}

if (feed) {
  open();
  // A browser has few connections to a server: pages that nobody sees need none.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) source.close();
    else if (source.readyState === EventSource.CLOSED) open();
  });
}
