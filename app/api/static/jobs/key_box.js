// Asks for the key where the service needs one, once for all that wait for it, and forgets it again.

import { explain } from "../text.js";
import { forgetKey, isGood, onLocked, sendKey } from "./server.js";

const SIGNED_IN = "reelword.signed-in"; // in this browser's storage, once a key was accepted
const WRONG = "This key is not accepted. Look whether it was copied whole.";

export class KeyBox {
  // $: finds an element by its id. told: declined(), opened(). isDeclined: until the visitor wants to send something.
  constructor($, told) {
    Object.assign(this, { $, told, unlocking: null, isDeclined: false });
    onLocked(() => this.ask());
    $("sign-out").hidden = !localStorage.getItem(SIGNED_IN);
    $("sign-out").addEventListener("click", async () => {
      await forgetKey();
      localStorage.removeItem(SIGNED_IN);
      location.reload();
    });
    $("key-show").addEventListener("click", () => {
      const isShown = $("key").type === "text";
      $("key").type = isShown ? "password" : "text";
      $("key-show").setAttribute("aria-pressed", String(!isShown));
    });
    $("key-cancel").addEventListener("click", () => this.end(false));
    $("key-box").addEventListener("cancel", () => this.end(false));
    $("key-form").addEventListener("submit", (event) => { event.preventDefault(); this.send(); });
  }

  // Whether there is a key now.
  ask() {
    if (this.isDeclined) return Promise.resolve(false);
    this.unlocking ||= new Promise((resolve) => {
      this.resolve = resolve;
      this.$("key-box").showModal();
    });
    return this.unlocking;
  }

  async send() {
    const answer = await sendKey(this.$("key").value.trim());
    if (!isGood(answer)) return void (this.$("key-said").textContent = answer.status === 0 ? explain(answer.body).join(" ") : WRONG);
    localStorage.setItem(SIGNED_IN, "yes");
    this.$("sign-out").hidden = false;
    this.end(true);
    this.told.opened();
    return undefined;
  }

  end(isOpen) {
    [this.unlocking, this.isDeclined] = [null, !isOpen];
    this.$("key-box").close();
    if (!isOpen) this.told.declined();
    this.resolve?.(isOpen);
  }
}
