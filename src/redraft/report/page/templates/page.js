"use strict";
(() => {
  const root = document.documentElement;
  const $ = (id) => document.getElementById(id);
  const all = (what, where = document) => [...where.querySelectorAll(what)];

  // Colours: as the system has them, light, dark. Kept where the browser lets a page keep something.
  const THEMES = ["", "light", "dark"];
  const kept = (value) => {
    try {
      if (value !== undefined) localStorage.setItem("redraft-theme", value);
      return localStorage.getItem("redraft-theme") || "";
    } catch {
      return value || root.dataset.theme || "";
    }
  };
  const paint = (theme) => {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    const button = $("theme");
    if (button) button.setAttribute("aria-label", `Colours: ${theme || "as the system has them"}`);
  };
  const nextTheme = () => {
    const now = root.dataset.theme || "";
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const order = dark ? ["", "light", "dark"] : ["", "dark", "light"];
    paint(order[(order.indexOf(THEMES.includes(now) ? now : "") + 1) % 3]);
    kept(root.dataset.theme || "");
    say(`Colours: ${root.dataset.theme || "as the system has them"}`);
  };
  paint(kept());

  let saying = 0;
  const say = (text) => {
    $("said").textContent = text;
    clearTimeout(saying);
    saying = setTimeout(() => ($("said").textContent = ""), 2500);
  };

  // The run as JSON: asked for from the server, or unpacked out of the file itself.
  const json = async (button) => {
    if (button.dataset.json) return (await fetch(button.dataset.json)).text();
    const packed = Uint8Array.from(atob($("data").textContent.trim()), (c) => c.charCodeAt(0));
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const copyJson = async (event) => {
    try {
      await navigator.clipboard.writeText(await json(event.currentTarget));
      say("Copied");
    } catch {
      say("The browser does not let this page copy; save it instead");
    }
  };
  const saveJson = async (event) => {
    const link = document.createElement("a");
    const name = decodeURIComponent(event.currentTarget.dataset.name).replace(/[^\w.-]+/g, "-");
    link.href = URL.createObjectURL(new Blob([await json(event.currentTarget)], { type: "application/json" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };

  // Where a link leads to is opened.
  const arrive = () => {
    const target = location.hash.length > 1 && $(decodeURIComponent(location.hash.slice(1)));
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    if (target) target.scrollIntoView();
  };

  // The list: filtered and sorted where it stands.
  const sorted = { key: "", up: false };
  const filter = () => {
    if (!$("q")) return;
    const words = $("q").value.toLowerCase().split(/\s+/).filter(Boolean);
    const tone = $("state").value;
    let shown = 0;
    for (const row of all("tr.run")) {
      const fits = words.every((w) => row.dataset.text.includes(w)) && (!tone || row.dataset.tone === tone);
      row.hidden = !fits;
      shown += fits;
    }
    $("found").textContent = words.length || tone ? `${shown} of ${all("tr.run").length}` : "";
    const query = new URLSearchParams(location.search);
    for (const [name, value] of [["q", $("q").value], ["state", tone]]) value ? query.set(name, value) : query.delete(name);
    history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}${location.hash}`);
  };
  const sort = () => {
    if (!sorted.key) return;
    const heads = all(".runs thead th");
    const at = heads.findIndex((th) => th.dataset.key === sorted.key);
    const number = heads[at].classList.contains("n");
    const value = (row) => row.children[at].dataset.v;
    const compare = (a, b) => {
      const [x, y] = [value(a), value(b)];
      if (number) return (x === "") - (y === "") || (sorted.up ? x - y : y - x); // what is not known comes last
      return sorted.up ? x.localeCompare(y) : y.localeCompare(x);
    };
    for (const body of all(".runs tbody")) body.append(...all("tr.run", body).sort(compare));
    for (const th of heads) th.removeAttribute("aria-sort");
    heads[at].setAttribute("aria-sort", sorted.up ? "ascending" : "descending");
  };

  // j and k: through drafts, or runs.
  const step = (by) => {
    const stops = all("article.card, tr.run:not([hidden])").filter((s) => s.getClientRects().length);
    const now = stops.findIndex((s) => s.classList.contains("here") || s === document.activeElement);
    const next = stops[Math.min(stops.length - 1, Math.max(0, now < 0 ? (by > 0 ? 0 : stops.length - 1) : now + by))];
    if (!next) return;
    for (const s of stops) s.classList.toggle("here", s === next);
    (next.querySelector("td a") || next).focus({ preventScroll: true });
    next.scrollIntoView({ block: next.tagName === "TR" ? "nearest" : "start" });
    if (next.id) history.replaceState(null, "", `#${next.id}`);
  };
  let view = 0;
  const views = () => {
    view = (view + 1) % 3; // the text, changes to the last accepted one, changes to the original
    for (const box of all(".views")) {
      const choices = all("input", box);
      if (choices.length) choices[Math.min(view, choices.length - 1)].checked = true;
    }
    say(["Text", "Changes to the last accepted draft", "Changes to the original"][view]);
  };
  const prompts = () => {
    const found = all("details.exact");
    const open = found.some((d) => !d.open);
    for (const d of found) d.open = open;
  };
  const KEYS = { j: () => step(1), k: () => step(-1), d: views, p: prompts, t: nextTheme };
  const key = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input[type=search], select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "/" && $("q")) {
      event.preventDefault();
      $("q").focus();
    } else if (Object.hasOwn(KEYS, event.key)) KEYS[event.key]();
  };

  // While a run is at work its page is asked for again; what the reader has opened stays open.
  const swap = (html) => {
    const open = all("details[id]").map((d) => [d.id, d.open]);
    const checked = all(".views input:checked").map((i) => i.id);
    const focus = document.activeElement && document.activeElement.id;
    const here = document.querySelector(".here a, .here");
    const marked = here && (here.getAttribute("href") || here.id);
    const parsed = new DOMParser().parseFromString(html, "text/html");
    $("live").replaceWith(document.adoptNode(parsed.getElementById("live")));
    for (const [id, was] of open) if ($(id)) $(id).open = was;
    for (const id of checked) if ($(id)) $(id).checked = true;
    if (focus && $(focus)) $(focus).focus({ preventScroll: true });
    if (marked) for (const s of all("article.card, tr.run")) s.classList.toggle("here", s.id === marked || !!s.querySelector(`td a[href="${CSS.escape(marked)}"]`));
    sort();
    filter();
  };
  const follow = async () => {
    const live = $("live");
    if (!live || !live.dataset.live) return;
    let wait = 1000;
    if (!document.hidden) {
      try {
        const sign = live.dataset.live.includes("?") ? "&" : "?";
        const reply = await fetch(`${live.dataset.live}${sign}part=1&seen=${encodeURIComponent(live.dataset.seen)}`);
        if (reply.status === 200) swap(await reply.text());
        else if (reply.status !== 204) wait = 5000;
      } catch {
        wait = 5000; // the server has gone; it may come back
      }
    }
    setTimeout(follow, wait);
  };

  document.addEventListener("DOMContentLoaded", () => {
    paint(kept());
    $("theme").addEventListener("click", nextTheme);
    if ($("copy")) $("copy").addEventListener("click", copyJson);
    if ($("save")) $("save").addEventListener("click", saveJson);
    document.addEventListener("keydown", key);
    addEventListener("hashchange", arrive);
    arrive();
    if ($("q")) {
      const query = new URLSearchParams(location.search);
      $("q").value = query.get("q") || "";
      $("state").value = query.get("state") || "";
      $("filter").addEventListener("input", filter);
      $("filter").addEventListener("submit", (event) => event.preventDefault());
      document.addEventListener("click", (event) => {
        const head = event.target.closest(".runs thead th");
        if (!head) return;
        const first = !head.classList.contains("n") && head.dataset.key !== "begun"; // words upwards, figures downwards
        sorted.up = sorted.key === head.dataset.key ? !sorted.up : first;
        sorted.key = head.dataset.key;
        sort();
      });
      filter();
    }
    follow();
  });
})();
