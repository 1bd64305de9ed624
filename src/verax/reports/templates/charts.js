"use strict";
// Draws the charts of a page, says their numbers on hover and as tables, and saves them.
const charts = (() => {
  const { View, parse, compile, expressionInterpreter } = globalThis.vegas;
  const font = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
  const config = {
    background: "transparent",
    font,
    padding: { left: 2, right: 8, top: 4, bottom: 2 },
    view: { stroke: null },
    axis: {
      labelColor: "var(--ink)", titleColor: "var(--muted)", titleFontWeight: "normal", gridColor: "var(--rule)",
      domainColor: "var(--rule)", tickColor: "var(--rule)", labelFontSize: 12, titleFontSize: 12,
    },
    // a label that is moved inwards at the end of the axis would run into its neighbour
    axisX: { labelColor: "var(--muted)", labelFlush: false, labelOverlap: "greedy", labelSeparation: 3 },
    legend: { labelColor: "var(--ink)", labelFontSize: 12, symbolSize: 80, layout: { bottom: { direction: "vertical", anchor: "end", margin: 3 } } },
    style: { "guide-title": { fill: "var(--muted)" } },
  };
  const views = new Map();
  const node = (name, className = "", text = "") => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== "") made.textContent = text;
    return made;
  };
  const failed = [];
  const quiet = { level: () => quiet, error: (...words) => { console.error(...words); return quiet; }, warn: () => quiet, info: () => quiet, debug: () => quiet };

  // --- what shows on hover: text nodes only, since names may hold anything ---
  const tip = node("div", "tip");
  tip.hidden = true;
  tip.setAttribute("role", "status");
  document.body.append(tip);
  const hover = (handler, event, item, value) => {
    tip.hidden = value === null || value === undefined || value === "";
    if (tip.hidden) return;
    tip.replaceChildren();
    const entries = typeof value === "object" ? Object.entries(value) : [["", value]];
    for (const [name, text] of entries) {
      const line = node("div");
      line.append(node("span", "name", name), node("span", "value", text === null || text === "null" ? "–" : String(text)));
      tip.append(line);
    }
    const wide = tip.offsetWidth, tall = tip.offsetHeight, room = document.documentElement.clientWidth;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, room - wide - 6))}px`;
    tip.style.top = `${event.clientY + 16 + tall > innerHeight ? event.clientY - tall - 10 : event.clientY + 16}px`;
  };
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  // --- saving ---
  const save = (name, text, type) => {
    const link = node("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const resolved = (text) => {
    const probe = node("span");
    probe.hidden = true;
    document.body.append(probe);
    const found = text.replace(/var\((--[a-z-]+)\)/g, (whole, name) => {
      probe.style.color = `var(${name})`;
      return getComputedStyle(probe).color;
    });
    probe.remove();
    return found;
  };
  const columns = (rows) => [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const cell = (value) => {
    // a leading =, + or @ would be a formula to a spreadsheet
    const text = value === null || value === undefined ? "" : String(value);
    const safe = typeof value === "string" && /^[=+@\t\r-]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const csv = (rows) => {
    const names = columns(rows);
    return [names.map(cell).join(","), ...rows.map((row) => names.map((name) => cell(row[name])).join(","))].join("\r\n") + "\r\n";
  };
  const table = (rows) => {
    const names = columns(rows), made = node("table"), head = node("tr"), body = node("tbody"), top = node("thead");
    const numbers = new Set(names.filter((name) => rows.every((row) => typeof row[name] === "number" || row[name] === null || row[name] === undefined)));
    for (const name of names) { const th = node("th", numbers.has(name) ? "number" : "", name); th.scope = "col"; head.append(th); }
    top.append(head);
    for (const row of rows) {
      const line = node("tr");
      for (const [place, name] of names.entries()) {
        const value = row[name], number = typeof value === "number", first = place === 0 && typeof value === "string";
        const made = line.appendChild(node(first ? "th" : "td", numbers.has(name) ? "number" : "", value === null || value === undefined ? "–" : number && !Number.isInteger(value) ? value.toFixed(3) : String(value)));
        if (first) made.scope = "row";
      }
      body.append(line);
    }
    made.append(top, body);
    return made;
  };

  // --- drawing ---
  const draw = async (canvas, spec, rows, more = {}) => {
    const whole = { width: "container", autosize: { type: "fit-x", contains: "padding" }, data: { name: "rows", values: rows }, ...spec };
    const compiled = compile(whole, { config, logger: quiet });
    const view = new View(parse(compiled.spec, compiled.config, { ast: true }), {
      renderer: "svg", container: canvas, expr: expressionInterpreter, hover: true, tooltip: hover, ...more,
    });
    // data are in the page: whatever a specification asks for from elsewhere is refused
    view.loader({ load: () => Promise.reject(new Error("nothing is loaded")), sanitize: () => Promise.reject(new Error("nothing is loaded")) });
    await view.runAsync();
    return view;
  };
  const mount = async (figure, data) => {
    const canvas = figure.querySelector(".canvas"), name = figure.dataset.chart;
    const view = await draw(canvas, data.spec, data.rows);
    views.set(name, view);
    canvas.style.minHeight = "";
    const chosen = figure.querySelector("select[data-choose]");
    const field = chosen?.dataset.choose;
    const rows = () => (chosen ? data.rows.filter((row) => String(row[field]) === chosen.value) : data.rows);
    const details = figure.querySelector("details");
    const fill = () => { if (details.open) details.querySelector(".scroll").replaceChildren(table(rows())); };
    details.addEventListener("toggle", () => { fill(); dispatchEvent(new Event("resize")); }); // its card may be wider now
    fill(); // somebody may have opened it before it was drawn
    chosen?.addEventListener("change", async () => { await view.signal("chosen", chosen.value).runAsync(); fill(); });
    figure.querySelector("[data-save=svg]").addEventListener("click", async () => save(`${name}.svg`, resolved(await view.toSVG()), "image/svg+xml"));
    figure.querySelector("[data-save=csv]").addEventListener("click", () => save(`${name}.csv`, csv(rows()), "text/csv"));
    figure.dataset.drawn = "yes";
  };
  // All charts are drawn at once, one after the other: what a link leads to must not move afterwards.
  const start = async (all) => {
    for (const figure of document.querySelectorAll("figure[data-chart]")) {
      try {
        await mount(figure, all[figure.dataset.chart]);
      } catch (error) {
        failed.push(String(error));
        figure.querySelector(".canvas").textContent = "This chart could not be drawn; its numbers are in the table.";
        console.error(error);
      }
    }
    const anchor = document.getElementById(location.hash.slice(1).split("?")[0]);
    if (anchor) anchor.scrollIntoView();
    document.documentElement.dataset.ready = "yes";
  };

  // --- light and dark: by the system, or by the button ---
  const button = document.getElementById("theme");
  const dark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const store = (act) => { try { return act(localStorage); } catch { return null; } };
  const theme = (name) => {
    document.documentElement.dataset.theme = name;
    store((kept) => kept.setItem("verax-theme", name));
    for (const source of document.querySelectorAll("picture source")) source.media = name === "dark" ? "all" : "not all";
    button.textContent = name === "dark" ? "Light" : "Dark";
  };
  if (button) {
    const kept = store((place) => place.getItem("verax-theme"));
    if (kept === "dark" || kept === "light") theme(kept);
    button.textContent = dark() ? "Light" : "Dark";
    button.addEventListener("click", () => theme(dark() ? "light" : "dark"));
    button.hidden = false;
  }

  return { start, draw, node, save, csv, views, failed };
})();
