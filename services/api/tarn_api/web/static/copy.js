// A button beside each snippet that copies it. Without this script, one click selects a snippet.
"use strict";
if (navigator.clipboard) {
  for (const snippet of document.querySelectorAll("pre.snippet")) {
    const button = document.createElement("button");
    const said = document.createElement("span");
    button.type = "button";
    button.className = "plain";
    button.textContent = "Copy";
    button.setAttribute("aria-label", `Copy the ${snippet.getAttribute("aria-label")}`);
    said.setAttribute("role", "status");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(snippet.textContent);
        said.textContent = " Copied.";
      } catch {
        said.textContent = " Not copied: the browser does not allow it. Select the text.";
      }
    });
    snippet.after(button, said);
  }
}
