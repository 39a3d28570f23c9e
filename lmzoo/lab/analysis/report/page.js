"use strict";
(() => {
  const value = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // Charts have the names of colours, so that a print is light and a change of the setting is seen.
  const resolved = (text) => text.replace(/var\((--[\w-]+)\)/g, (_, name) => value(name));
  const style = () => {
    const [fg, muted, line] = ["var(--fg)", "var(--muted)", "var(--line)"];
    const text = { labelColor: fg, titleColor: muted, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal" };
    return {
      background: "transparent",
      font: "system-ui, sans-serif",
      view: { stroke: null },
      axis: { ...text, gridColor: line, domainColor: line, tickColor: line },
      legend: { ...text, symbolBaseFillColor: muted, symbolBaseStrokeColor: muted },
      title: { color: fg, subtitleColor: muted, fontSize: 14 },
    };
  };
  const WIDE = 700, PHONE = 560;
  const unpacked = (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const save = (text, type, name) => {
    const file = URL.createObjectURL(new Blob([text], { type }));
    Object.assign(document.createElement("a"), { href: file, download: name }).click();
  };
  for (const link of document.querySelectorAll("a.file")) {
    link.addEventListener("click", async (event) => {
      event.preventDefault();
      save(await unpacked(link.nextElementSibling.textContent), "text/csv", link.textContent);
    });
  }
  const views = new Map();
  const saveLink = (place, title) => {
    const caption = place.parentElement.querySelector("figcaption");
    const link = caption.querySelector("a") ?? caption.appendChild(document.createElement("a"));
    const name = title.toLowerCase().replace(/[^a-z0-9]+/g, "-");
    Object.assign(link, { textContent: "save as SVG", href: "#", onclick: async (event) => {
      event.preventDefault();
      // A file has no page behind it: its ground is a part of the picture.
      const ground = `<rect width="100%" height="100%" fill="${value("--bg")}"/>`;
      const drawn = resolved(await views.get(place).view.toSVG());
      const text = drawn.replace(/<svg[^>]*>/, (head) => head + ground);
      save(text, "image/svg+xml", `${name}.svg`);
    } });
  };
  const draw = async (place) => {
    const width = place.clientWidth || document.querySelector("main").clientWidth;
    const spec = JSON.parse(await unpacked(place.nextElementSibling.textContent));
    const config = style();
    config.axisY = { labelLimit: Math.min(340, 0.55 * width) };
    if (width < PHONE) config.axisX = { titleAnchor: "end" };  // a long title has room on the left only
    config.axisQuantitative = { labelOverlap: "greedy", labelSeparation: 8, labelFlush: false };
    config.axisXQuantitative = { tickCount: Math.max(3, Math.round(width / 110)) };
    const wide = spec.params?.find((param) => param.name === "wide");
    if (wide && width >= WIDE) {
      wide.value = true;
      spec.height = spec.usermeta.wide;
    }
    if (!place.clientWidth) spec.width = width;  // in a fold that is closed: a print shows it
    if (spec.usermeta?.ends) {
      if (width < PHONE) {
        spec.layer = spec.layer.filter((layer) => !layer.name?.startsWith("ends"));
      } else {
        for (const { encoding: { color, strokeDash } } of spec.layer) {
          if (!color || color.legend?.orient === "top") continue;
          color.legend = null;
          if (strokeDash) strokeDash.legend = null;
        }
      }
    }
    if (width < 900) {
      for (const { color, shape } of (spec.layer ?? []).map((layer) => layer.encoding ?? {})) {
        const tops = [color?.legend, shape?.legend].filter((legend) => legend?.orient === "top");
        for (const legend of tops) legend.columns = width < PHONE ? 1 : 4;
      }
    }
    if (width < PHONE) {
      const named = spec.layer?.some((layer) => layer.encoding.color?.title === "point");
      Object.assign(config.legend, {
        orient: "bottom", columns: named ? 1 : 2, labelLimit: named ? width - 40 : 150,
        layout: { bottom: { direction: "vertical", anchor: "start" } },
      });
    }
    views.get(place)?.finalize();
    views.set(place, await vegaEmbed(place, spec, { actions: false, renderer: "svg", config }));
    place.setAttribute("aria-label", spec.description);  // Vega-Embed replaces it
    saveLink(place, spec.description);
  };
  // The charts on the screen are drawn first, then the others; the page stays responsive.
  let round = 0;
  const drawAll = async () => {
    const own = ++round, all = [...document.querySelectorAll(".chart")];
    const isFolded = (place) => Boolean(place.closest("details:not([open])"));
    const places = all.filter((place) => !isFolded(place));
    const folded = all.filter(isFolded);
    for (const place of folded) views.delete(place);  // drawn again when its fold opens
    const seen = (place) => {
      const box = place.getBoundingClientRect();
      return box.bottom > 0 && box.top < innerHeight;
    };
    while (places.length && own === round) {
      const next = Math.max(0, places.findIndex(seen));
      await draw(places.splice(next, 1)[0]);
      await new Promise((resolve) => { setTimeout(resolve, 0); });
    }
    if (own === round) document.documentElement.dataset.drawn = "yes";
    for (const place of folded) {
      if (own !== round) return;
      await new Promise((resolve) => { setTimeout(resolve, 50); });
      if (isFolded(place)) await draw(place).then(() => views.delete(place));
    }
    if (own === round) document.documentElement.dataset.printable = "yes";
  };
  addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("details:not([open])")) fold.open = fold.dataset.closed = true;
  });
  addEventListener("afterprint", () => {
    for (const fold of document.querySelectorAll("details[data-closed]")) {
      fold.open = false;
      delete fold.dataset.closed;
    }
  });
  const library = document.getElementById("library");
  if (library) {
    unpacked(library.textContent).then((code) => {
      const script = document.createElement("script");
      script.textContent = code;
      document.head.append(script);
      return drawAll();
    });
    for (const fold of document.querySelectorAll("details")) {
      fold.addEventListener("toggle", async () => {
        for (const place of fold.querySelectorAll(".chart")) {
          if (fold.open && !views.has(place) && window.vegaEmbed) await draw(place);
        }
      });
    }
  }

  // A page that `lmzoo serve` loads again keeps what its reader opened and wrote.
  const key = `lmzoo ${location.pathname}`;
  const folds = () => [...document.querySelectorAll("details")];
  const heads = () => [...document.querySelectorAll("table.sortable th")];
  const fields = () => [...document.querySelectorAll("input[type=search]")];
  addEventListener("pagehide", () => {
    const open = folds().map((fold) => fold.open), words = fields().map((field) => field.value);
    const sorts = heads().map((head) => head.getAttribute("aria-sort"));
    try { sessionStorage.setItem(key, JSON.stringify({ open, words, sorts })); } catch { /* no storage */ }
  });
  const restore = () => {
    let kept = null;
    try { kept = JSON.parse(sessionStorage.getItem(key)); } catch { /* no storage */ }
    if (!kept || kept.open.length !== folds().length) return;
    folds().forEach((fold, i) => { fold.open = kept.open[i]; });
    fields().forEach((field, i) => {
      field.value = kept.words[i] ?? "";
      field.dispatchEvent(new Event("input"));
    });
    kept.sorts.forEach((sort, i) => {
      const button = heads()[i]?.querySelector("button");
      if (sort) button?.click();
      if (sort === "descending") button?.click();
    });
  };

  // A link opens the section that it leads to.
  for (const link of document.querySelectorAll("nav a")) {
    link.addEventListener("click", () => {
      const fold = document.querySelector(`${link.getAttribute("href")} > details`);
      if (fold) fold.open = true;
    });
  }

  const number = (text) => {
    const found = text.replace("−", "-").replaceAll(",", "").match(/-?\d+(\.\d+)?(e-?\d+)?/);
    return found ? Number(found[0]) : null;
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const search = document.createElement("input");
    Object.assign(search, { type: "search", placeholder: "filter the rows" });
    search.setAttribute("aria-label", `filter: ${table.getAttribute("aria-label")}`);
    search.addEventListener("input", () => {
      for (const row of body.rows) {
        row.classList.toggle("hidden", !row.textContent.toLowerCase().includes(search.value.toLowerCase()));
      }
    });
    table.parentElement.before(search);
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const asText = head.classList.contains("text");
        const keys = new Map([...body.rows].map((row) => {
          const text = row.cells[column].textContent;
          return [row, asText ? text : number(text)];
        }));
        const order = (a, b) => {
          const [x, y] = [keys.get(a), keys.get(b)];
          if (x === null || y === null) return (x === null) - (y === null);
          return (asText ? x.localeCompare(y) : x - y) * (up ? 1 : -1);
        };
        body.append(...[...body.rows].sort(order));
      });
    });
  }
  restore();
})();
