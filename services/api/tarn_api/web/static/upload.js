// Drag and drop for the upload form, and progress. Without this script the form works as it is.
"use strict";
const form = document.getElementById("upload");
const progress = document.getElementById("progress");

function send(file, path) {
  return new Promise((resolve, reject) => {
    const data = new FormData();
    data.append("path", path);
    if (form.elements.replace.checked) data.append("replace", "1");
    data.append("content", file);
    const request = new XMLHttpRequest();
    request.open("POST", form.action);
    request.setRequestHeader("Accept", "application/json");
    request.upload.onprogress = (event) => {
      if (event.lengthComputable) {
        progress.textContent = `${file.name}: ${Math.floor((event.loaded / event.total) * 100)} %`;
      }
    };
    request.onload = () => {
      if (request.status < 400) return resolve();
      let text = `status ${request.status}`;
      try {
        text = JSON.parse(request.responseText).message || text;
      } catch {
        // An answer of something else than Tarn.
      }
      reject(new Error(text));
    };
    request.onerror = () => reject(new Error("the connection failed; look whether the object is there"));
    request.send(data);
  });
}

async function sendAll(files, path) {
  try {
    for (const file of files) await send(file, path);
    location.reload();
  } catch (error) {
    progress.textContent = `Not uploaded: ${error.message}`;
  }
}

if (form) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    sendAll(form.elements.content.files, form.elements.path.value);
  });
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    form.classList.add("target");
  });
  document.addEventListener("dragleave", () => form.classList.remove("target"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    form.classList.remove("target");
    sendAll(event.dataTransfer.files, "");
  });
}
