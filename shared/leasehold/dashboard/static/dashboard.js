// Looks again at the page that is open while something moves, and swaps what has changed.
// Without it, every page and every form works as well; it is the reader who looks again then.
"use strict";
(() => {
  const WAIT_AFTER_ERROR_S = 5;
  const AGES_S = 10;
  const ENDS = [400, 403, 404, 405]; // to ask again gives the same
  let etag = '""'; // asks for one
  let timer = null;
  let paused = false;
  let busy = false;

  const main = () => document.getElementById("main");
  const isProblem = () => "problem" in document.body.dataset;
  const seconds = () => Number(document.body.dataset.poll) || 0;

  // -- when to look ----------------------------------------------------------------------------
  function plan(after = seconds()) {
    clearTimeout(timer);
    if (after && !paused && !document.hidden) timer = setTimeout(look, after * 1000);
  }

  async function look() {
    if (busy || paused || document.hidden) return;
    busy = true;
    let next;
    try {
      const headers = { Accept: "text/html", "If-None-Match": etag };
      const answer = await fetch(location.href, { headers, cache: "no-store" });
      const text = await answer.text();
      if (answer.status === 401 || (isProblem() && answer.status !== 503)) {
        location.reload(); // the session is over, or the problem is
      } else if (answer.ok) {
        etag = answer.headers.get("ETag") ?? etag;
        swap(text);
      } else if (answer.status !== 304) {
        next = WAIT_AFTER_ERROR_S;
        paused ||= ENDS.includes(answer.status);
        tell(`${sentenceOf(text, answer.status)} This page shows what it was before.`);
      }
      if (answer.ok || answer.status === 304) tell("");
    } catch {
      next = WAIT_AFTER_ERROR_S;
      tell("The server does not answer; this page shows what it was before.");
    } finally {
      busy = false;
    }
    plan(next);
  }

  function sentenceOf(html, status) {
    const page = new DOMParser().parseFromString(html, "text/html");
    return page.querySelector("[role=alert]")?.textContent ?? `The server answers ${status}.`;
  }

  function tell(words) {
    show();
    if (isProblem()) return; // it says so itself
    const said = document.getElementById("away");
    if (said.textContent !== words) said.textContent = words;
    said.hidden = !words;
  }

  // -- swap what has changed ---------------------------------------------------------------------
  function swap(html) {
    const page = new DOMParser().parseFromString(html, "text/html");
    const fresh = page.getElementById("main");
    if (!fresh) return;
    document.body.dataset.poll = page.body.dataset.poll;
    document.title = page.title;
    compare(page.body.dataset.now);
    const before = news();
    morph(main(), fresh);
    const changed = news().filter((words) => !before.includes(words));
    if (changed.length) heard.textContent = changed.join(", ");
    ages();
  }

  // Who hears the page is told of a state that changed, and of nothing else.
  const news = () => [...main().querySelectorAll("[data-news]")].map((it) => it.textContent.trim().replace(/\s+/g, " "));

  // What a reader is at stays: a form that has the focus or was filled in, and what was opened.
  const isForm = (node) => node instanceof Element && node.tagName === "FORM";
  const isInUse = (node) => isForm(node) && (node.contains(document.activeElement) || isFilled(node));
  const hasFilled = (node) => node instanceof Element && [...node.querySelectorAll("form")].some(isFilled);

  function isFilled(form) {
    return [...form.elements].some((one) =>
      one.type === "checkbox" ? one.checked !== one.defaultChecked
        : one.tagName === "SELECT" ? [...one.options].some((it) => it.selected !== it.defaultSelected)
        : "defaultValue" in one && one.type !== "hidden" && one.value !== one.defaultValue);
  }

  const keyOf = (node) => (node?.nodeType === 1 && (node.dataset.key || node.id)) || "";

  function isSame(old, fresh) {
    return old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && !keyOf(old);
  }

  function morph(old, fresh) {
    if (old.nodeType !== 1) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    if (isInUse(old) || old.isEqualNode(fresh)) return;
    for (const { name, value } of fresh.attributes)
      if (old.getAttribute(name) !== value && !(name === "open")) old.setAttribute(name, value);
    for (const { name } of [...old.attributes])
      if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
    const keyed = new Map([...old.children].filter(keyOf).map((it) => [keyOf(it), it]));
    let at = old.firstChild;
    for (const one of [...fresh.childNodes]) {
      const key = keyOf(one);
      const known = key ? keyed.get(key) : at && isSame(at, one) ? at : null;
      if (!known) {
        const added = document.importNode(one, true);
        old.insertBefore(added, at);
        if (added.nodeName === "TR") added.classList.add("changed");
      } else {
        if (known === at) at = at.nextSibling;
        else old.insertBefore(known, at);
        morph(known, one);
      }
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      if (hasFilled(gone)) continue; // it is refused when it is sent, and its words are not lost
      if (gone.contains(document.activeElement)) main().focus({ preventScroll: true });
      gone.remove();
    }
  }

  // -- ages ----------------------------------------------------------------------------------------
  let ahead = 0; // of the server, in milliseconds
  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  function compare(now) {
    if (now) ahead = Date.parse(now) - Date.now();
  }

  function ages() {
    for (const one of document.querySelectorAll("time[datetime]")) {
      const passed = (Date.now() + ahead - Date.parse(one.dateTime)) / 1000;
      const span = Math.max(1, Math.round(Math.abs(passed)));
      const [size, unit] = UNITS.find(([least]) => span >= least);
      const words = `${Math.floor(span / size)} ${unit}`;
      const text = passed < 0 ? `in ${words}` : `${words} ago`;
      if (one.textContent !== text) one.textContent = text;
    }
  }

  // -- begin -----------------------------------------------------------------------------------------
  compare(document.body.dataset.now);
  const away = document.createElement("p");
  Object.assign(away, { id: "away", className: "notice bad", hidden: true });
  away.setAttribute("role", "status");
  const heard = document.createElement("p");
  Object.assign(heard, { id: "heard", className: "hidden" });
  heard.setAttribute("aria-live", "polite");
  document.querySelector("header").after(away, heard);
  const button = document.createElement("button");
  function show() {
    const words = paused ? "Paused: look again" : "Live: pause";
    if (button.textContent !== words) button.textContent = words;
  }
  if (seconds()) {
    button.type = "button";
    button.className = "live";
    button.addEventListener("click", () => {
      paused = !paused;
      show();
      if (!paused) look();
    });
    show();
    document.querySelector(".who").append(" ", button);
  }
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : seconds() && look()));
  setInterval(() => document.hidden || paused || ages(), AGES_S * 1000);
  plan();
})();
