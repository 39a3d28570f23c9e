// Tables that scroll are reached by the keyboard. The theme wraps them after the page is loaded.
new MutationObserver(() => {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) table.tabIndex = 0;
}).observe(document.body, { childList: true, subtree: true });

// A page with the field `rows` shows the rows that have all of its words, and sorts by a heading.
const field = document.getElementById("rows");
const tables = field ? document.querySelectorAll("article table:not(details table)") : [];
field?.addEventListener("input", () => {
  const words = field.value.toLowerCase().split(/\s+/);
  for (const table of tables) {
    for (const row of table.tBodies[0].rows) {
      row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    }
  }
});
const number = (text) => parseFloat(text.replace("−", "-").replaceAll(",", ""));
for (const table of tables) {
  for (const heading of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const down = heading.ariaSort === "ascending";
      for (const other of table.tHead.rows[0].cells) other.ariaSort = null;
      heading.ariaSort = down ? "descending" : "ascending";
      const text = (row) => row.cells[heading.cellIndex].textContent;
      const rows = [...table.tBodies[0].rows].map((row) => [row, text(row), number(text(row))]);
      const known = rows.filter(([, , value]) => !isNaN(value)).length;
      const order = 2 * known > rows.length  // numbers, those that are missing last
        ? ([, , a], [, , b]) => (isNaN(a) - isNaN(b)) || (down ? b - a : a - b)
        : ([, a], [, b]) => (down ? b.localeCompare(a) : a.localeCompare(b));
      table.tBodies[0].append(...rows.sort(order).map(([row]) => row));
    });
  }
}
