// Keeps the overview fresh. The page works without: it is the same that the
// server renders, region by region.
"use strict";
(() => {
  const line = document.getElementById("live");
  if (!line || !window.EventSource) return;
  const late = new Map();
  const region = (name) => document.querySelector(`[data-live="${CSS.escape(name)}"]`);

  // Nothing is taken from under somebody who is at it.
  const inUse = (place) => {
    if (place.contains(document.activeElement)) return true;
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && selection.containsNode(place, true);
  };
  const show = (name, html) => {
    const place = region(name);
    if (!place) return;
    if (inUse(place)) {
      late.set(name, html);
      return;
    }
    late.delete(name);
    place.innerHTML = html;
  };
  const catchUp = () => new Map(late).forEach((html, name) => show(name, html));
  document.addEventListener("focusout", () => setTimeout(catchUp));
  document.addEventListener("selectionchange", catchUp);

  const say = (text) => { line.textContent = text; };
  const events = new EventSource(line.dataset.events);
  events.addEventListener("overview", (event) => {
    const { at, regions } = JSON.parse(event.data);
    for (const [name, html] of Object.entries(regions)) show(name, html);
    say(`Live, last change ${at}`);
  });
  events.addEventListener("open", () => say("Live"));
  events.addEventListener("error", () => {
    say(events.readyState === EventSource.CLOSED
      ? "Not live any more: load the page again"
      : "Connection lost, trying again");
  });
  // A page that is left must not keep a connection.
  window.addEventListener("pagehide", () => events.close());
  window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
})();
