// A browser starts no worker for a page that was opened from disk, and the search runs in one:
// there it runs in a hidden frame. (The plugin `offline` would load a script for it from elsewhere.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc =
        "<script>self.postMessage = (data) => parent.postMessage(data, '*')<\/script>" +
        `<script src="${new URL(url, document.baseURI)}"><\/script>`;
      this.ready = new Promise((resolve) => frame.addEventListener("load", resolve));
      this.frame = frame;
      addEventListener("message", (event) => {
        if (event.source === frame.contentWindow)
          this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      });
      document.body.append(frame);
    }

    postMessage(data) {
      this.ready.then(() => {
        const inside = this.frame.contentWindow;
        inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      });
    }
  };
}
